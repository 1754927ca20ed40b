"""What passes through the proxy, and how."""

from __future__ import annotations

import asyncio
from unittest import mock

import orjson
import pytest

from runner.core.proxy.http.ends import ClientConnection, ServerConnection
from tests.kit.wait import patience, until
from tests.unit.proxy.stage import Message, Stage


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_passes_with_target_headers_and_content(stage: Stage, method: str) -> None:
    body = b"" if method in {"GET", "OPTIONS"} else b"\x00k8s\xff" * 10
    wire = await stage.connect()
    target = "/api/v1/namespaces/a%2Fb/pods?x=%20&y=1%2B1"
    answer = await wire.ask(stage.request(f"{method} {target}", "Content-Type: x/y", "X-Odd: b\xe9", body=body))
    assert (answer.status, answer.body) == (200, b"{}")
    (seen,) = stage.api.seen
    assert seen.start == f"{method} {target} HTTP/1.1"
    assert seen.body == body
    assert seen.get("Content-Type") == "x/y"
    assert seen.get("X-Odd") == "b\xe9"
    assert seen.get("Host") == stage.api.url.removeprefix("http://")


@pytest.mark.parametrize("status", [200, 201, 202, 400, 403, 404, 409, 410, 422, 429, 500, 503])
async def test_every_answer_passes_with_its_headers(stage: Stage, status: int) -> None:
    more = ["Warning: 299 - old", "Warning: 299 - older", "Retry-After: 1", "Audit-Id: x"]
    stage.api.answers(stage.reply(b'{"kind":"Status"}', f"{status} Said So", *more))
    answer = await stage.get()
    assert answer.start == f"HTTP/1.1 {status} Said So"
    assert [": ".join(header) for header in answer.headers][2:] == more
    assert answer.body == b'{"kind":"Status"}'


async def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    async def echo(message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.reply(message.target.encode()))

    stage.api.script = echo
    wire = await stage.connect()
    wire.send(b"".join(stage.request(f"GET /{n}") for n in range(30)))
    for n in range(30):
        assert (await wire.answer()).body == b"/%d" % n


async def test_headers_of_one_connection_are_not_forwarded(stage: Stage) -> None:
    stage.api.answers(
        stage.reply(b"{}", "200 OK", "Connection: keep-alive, X-Hop", "Keep-Alive: 5", "X-Hop: 1", "A: b")
    )
    hop = ["Connection: X-Mine, keep-alive", "X-Mine: 1", "Keep-Alive: 5", "Proxy-Connection: x", "TE: trailers"]
    answer = await stage.get("/x", *hop, "Proxy-Authorization: Basic eA==", "Trailer: T", "X-Kept: 1")
    assert [name for name, _ in answer.headers] == ["Content-Type", "Content-Length", "A"]
    names = {name for name, _ in stage.api.seen[0].headers}
    assert names == {"Host", "X-Kept", "Authorization", "Via"}


async def test_a_client_cannot_remove_headers_that_the_proxy_adds(stage: Stage) -> None:
    await stage.get("/x", "Connection: Authorization, Host, Content-Length")
    assert stage.api.seen[0].get("Authorization") == "Bearer operators-own"
    assert stage.api.seen[0].get("Host")


@pytest.mark.parametrize(
    ("method", "status", "header"),
    [
        ("HEAD", "200 OK", ("Content-Length", "10")),
        ("GET", "204 No Content", ("ETag", "x")),
        ("GET", "304 Not Modified", ("ETag", "x")),
    ],
    ids=["to HEAD", "no content", "not modified"],
)
async def test_an_answer_that_cannot_have_content_has_none_and_keeps_its_headers(
    stage: Stage, method: str, status: str, header: tuple[str, str]
) -> None:
    stage.api.answers(f"HTTP/1.1 {status}\r\n{header[0]}: {header[1]}\r\n\r\n".encode(), stage.reply())
    wire = await stage.connect()
    answer = await wire.ask(stage.request(f"{method} /api/v1/pods/x"), to_head=method == "HEAD")
    assert answer.get(header[0]) == header[1]
    assert (await wire.ask(stage.request())).body == b"{}"
    assert stage.api.connections == 1


async def test_chunks_stream_as_they_come(stage: Stage) -> None:
    go = asyncio.Event()

    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"one", b"two"):
            await go.wait()
            go.clear()
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\nX-Trailer: dropped\r\n\r\n")

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request("GET /api/v1/pods?watch=1"))
    assert (await stage.read_head(wire.reader)).get("Transfer-Encoding") == "chunked"
    for piece in (b"one", b"two", b""):
        go.set()
        assert await stage.read_chunk(wire.reader) == piece


async def test_an_answer_that_ends_with_its_connection_is_whole(stage: Stage) -> None:
    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        writer.close()

    stage.api.script = script
    assert (await stage.get()).body == b"all of it"


async def test_an_old_client_gets_no_chunks(stage: Stage) -> None:
    stage.api.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    wire = await stage.connect()
    wire.send(stage.request().replace(b"HTTP/1.1", b"HTTP/1.0"))
    async with asyncio.timeout(patience()):
        head, _, body = (await wire.reader.read()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"abc"


async def test_chunked_content_passes_without_being_collected(stage: Stage) -> None:
    stage.api.heads_only = True
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(_: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await stage.read_chunk(reader):
            pieces.put_nowait(piece)
        writer.write(stage.reply())

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request("POST /api/v1/x", "Transfer-Encoding: chunked"))
    for piece in (b"a", b"bc"):
        wire.send(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
        assert await pieces.get() == piece
    assert (await wire.ask(b"0\r\n\r\n")).status == 200


async def test_a_client_that_expects_100_continue_gets_it_from_the_api_server(stage: Stage) -> None:
    stage.api.heads_only = True

    async def script(message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert message.get("Expect") == "100-continue"
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(stage.reply(await reader.readexactly(3)))

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request("PUT /api/v1/x", "Expect: 100-continue", "Content-Length: 3"))
    assert (await stage.read_head(wire.reader)).status == 100
    assert (await wire.ask(b"abc")).body == b"abc"


async def test_a_refusal_without_reading_the_content_arrives(stage: Stage) -> None:
    stage.api.heads_only = True
    stage.api.answers(stage.reply(b"too large", "413 Too Large", "Connection: close"))
    wire = await stage.connect()
    wire.send(stage.request("POST /api/v1/x", "Content-Length: 5000000"))
    wire.send(b"x" * 100_000)
    answer = await wire.answer()
    assert (answer.status, answer.body, answer.get("Connection")) == (413, b"too large", "close")


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""], ids=["begun", "none"]
)
async def test_a_client_that_goes_ends_its_call_at_the_api_server(stage: Stage, answer: bytes) -> None:
    stage.api.answers(answer)
    wire = await stage.connect()
    wire.send(stage.request("GET /api/v1/pods?watch=1"))
    await until(lambda: stage.api.seen)
    if answer:
        await stage.read_head(wire.reader)
    wire.close()
    async with asyncio.timeout(patience()):
        await stage.api.lost.wait()


@pytest.mark.parametrize("head", ["Transfer-Encoding: chunked\r\n\r\n5\r\nab", "Content-Length: 5\r\n\r\nab"])
async def test_a_truncated_answer_is_not_completed(stage: Stage, head: str) -> None:
    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{head}".encode())
        writer.close()

    stage.api.script = script
    wire = await stage.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await wire.ask(stage.request())


@pytest.mark.lengthy
async def test_a_slow_reader_delays_only_its_own_answer(stage: Stage) -> None:
    sent = 0

    async def script(message: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if message.target != "/large":
            writer.write(stage.reply())
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
        for _ in range(64):
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1

    stage.api.script = script
    slow = await stage.connect()
    slow.send(stage.request("GET /large"))
    await until(lambda: sent > 0)
    assert (await stage.get()).status == 200
    await asyncio.sleep(0.1)
    assert sent < 40
    assert len((await slow.answer()).body) == 67108864


@pytest.mark.lengthy
async def test_a_slow_api_server_makes_the_client_wait(stage: Stage) -> None:
    stage.api.heads_only = True
    go = asyncio.Event()

    async def script(_: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(stage.reply(b"%d" % len(await reader.readexactly(32 << 20))))

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request("POST /api/v1/x", f"Content-Length: {32 << 20}"))
    wire.send(bytes(32 << 20))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.writer.drain(), 0.5)
    assert wire.writer.transport.get_write_buffer_size() > 8 << 20
    go.set()
    await wire.writer.drain()
    assert (await wire.answer()).body == b"%d" % (32 << 20)


@pytest.mark.parametrize(
    ("start", "statuses", "sent"),
    [("GET /api/v1/pods", [200, 200], 3), ("POST /api/v1/namespaces", [200, 503], 2)],
    ids=["a read is repeated", "a write is never sent twice"],
)
async def test_a_kept_connection_that_was_closed_meanwhile_is_noticed_only_by_a_write(
    stage: Stage, start: str, statuses: list[int], sent: int
) -> None:
    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(stage.api.seen) == 2:
            writer.close()
        else:
            writer.write(stage.reply())

    stage.api.script = script
    wire = await stage.connect()
    body = b"{}" if start.startswith("POST") else b""
    assert [(await wire.ask(stage.request(start, body=body))).status for _ in range(2)] == statuses
    assert len(stage.api.seen) == sent


async def test_an_unreachable_api_server_is_reported_as_a_status_object(stage: Stage) -> None:
    stage.api.script = lambda *_: asyncio.sleep(0)
    stage.proxy._upstream._credentials.base_url = "http://127.0.0.1:9"
    answer = await stage.get()
    assert answer.status == 503
    assert orjson.loads(answer.body)["reason"] == "ServiceUnavailable"
    assert stage.token not in repr(answer)


@pytest.mark.parametrize("size", [2, 300_000, 4 << 20])
@pytest.mark.parametrize(
    "start", ["PATCH /api/v1/namespaces/ns/pods/a", "DELETE /api/v1/x", "PUT /api/v1/namespaces/ns/pods/a/status"]
)
async def test_a_request_whose_credentials_are_refused_is_repeated_with_its_content(
    stage: Stage, start: str, size: int
) -> None:
    body = b"x" * size
    stage.api.answers(stage.reply(b"{}", "401 Unauthorized"), stage.reply(b"fine"))
    assert (await stage.ask(start, "Content-Type: application/json-patch+json", body=body)).body == b"fine"
    assert [each.body for each in stage.api.seen] == [body, body]


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        (["Transfer-Encoding: chunked"], b"3\r\nabc\r\n0\r\n\r\n"),
        (["Expect: 100-continue", "Content-Length: 3"], b"abc"),
    ],
)
async def test_content_that_the_api_server_did_not_read_is_repeated(
    stage: Stage, headers: list[str], sent: bytes
) -> None:
    async def script(message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not stage.api.heads_only:
            writer.write(stage.reply(message.body))
            return
        stage.api.heads_only = False
        writer.write(stage.reply(b"{}", "401 Unauthorized", "Connection: close"))
        await writer.drain()
        await reader.read()

    stage.api.script, stage.api.heads_only = script, True
    wire = await stage.connect()
    wire.send(stage.request("POST /api/v1/x", *headers))
    if len(headers) > 1:
        assert (await stage.read_head(wire.reader)).status == 100
    answer = await wire.ask(sent)
    assert (answer.status, answer.body) == (200, b"abc")


async def test_content_that_is_too_large_to_repeat_is_refused_as_before(stage: Stage) -> None:
    stage.api.answers(stage.reply(b"{}", "401 Unauthorized"), stage.reply(b"fine"))
    assert (await stage.ask("POST /api/v1/x", body=b"x" * ((4 << 20) + 1))).status == 401


@pytest.mark.lengthy
async def test_an_idle_proxy_closes_at_once_and_a_busy_one_lets_calls_end(stage: Stage) -> None:
    go = asyncio.Event()

    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(stage.reply())

    stage.api.script = script
    idle, busy, endless = [await stage.connect() for _ in range(3)]
    busy.send(stage.request())
    endless.send(stage.request("GET /api/v1/pods?watch=1"))
    await until(lambda: len(stage.api.seen) == 2)
    closing = asyncio.create_task(stage.proxy.close(5.0))
    assert await idle.is_closed()
    assert await endless.is_closed()
    go.set()
    answer = await busy.answer()
    assert (answer.status, answer.get("Connection")) == (200, "close")
    await closing


async def test_upgraded_connections_are_joined_byte_by_byte(stage: Stage) -> None:
    async def script(message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (message.get("Connection"), message.get("Upgrade")) == ("Upgrade", "SPDY/3.1")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst")
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    stage.api.script = script
    wire = await stage.connect()
    upgrade = ["Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v5"]
    wire.send(stage.request("POST /api/v1/namespaces/a/pods/b/exec", *upgrade) + b"early")
    head = await stage.read_head(wire.reader)
    assert (head.status, head.get("Upgrade")) == (101, "SPDY/3.1")
    assert await wire.reader.readexactly(10) == b"firstEARLY"
    wire.send(b"\x00\xff")
    assert await wire.reader.readexactly(2) == b"\x00\xff"
    wire.writer.write_eof()
    assert await wire.is_closed()
    async with asyncio.timeout(patience()):
        await stage.api.lost.wait()


async def test_what_the_api_server_sent_before_an_upgraded_connection_was_lost_arrives_and_then_its_end() -> None:
    transports = [mock.create_autospec(asyncio.Transport, instance=True) for _ in range(2)]
    upgraded, client = ServerConnection(), ClientConnection()
    upgraded.connection_made(transports[0])
    client.connection_made(transports[1])
    upgraded.expect("GET")
    upgraded.data_received(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nlast")
    upgraded.connection_lost(None)
    upgraded.join(client)
    assert transports[1].method_calls[-2:] == [mock.call.write(b"last"), mock.call.close()]


async def test_an_upgrade_that_is_refused_leaves_http_as_it_was(stage: Stage) -> None:
    stage.api.answers(stage.reply(b"no", "403 Forbidden"), stage.reply(b"fine"))
    wire = await stage.connect()
    upgrade = ["Connection: Upgrade", "Upgrade: websocket"]
    assert (await wire.ask(stage.request("GET /api/v1/x", *upgrade) + stage.request())).body == b"no"
    assert (await wire.answer()).body == b"fine"


async def test_other_protocols_are_not_passed_on(stage: Stage) -> None:
    wire = await stage.connect()
    h2c = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]
    assert (await wire.ask(stage.request("GET /x", *h2c))).body == b"{}"
    assert stage.api.seen[0].get("Upgrade") is None
    assert stage.api.seen[0].get("HTTP2-Settings") is None
    assert (await wire.ask(stage.request())).body == b"{}"


async def test_an_upgrade_without_a_request_is_an_error(stage: Stage) -> None:
    stage.api.answers(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    assert (await stage.get()).status == 503
