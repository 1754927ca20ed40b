"""What no client of ours sends: messages that are none, or that could be understood in two ways (RFC 9112)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.kit.wait import patience, until
from tests.unit.proxy.stage import Stage

CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["Content-Length: 4", CHUNKED], "0\r\n\r\n"),
        ([CHUNKED, "Content-Length: 4"], "0\r\n\r\n"),
        (["Content-Length: 1", "Content-Length: 1"], "a"),
        (["Content-Length: 1", "Content-Length: 2"], "ab"),
        (["Content-Length: 1, 1"], "a"),
        (["Content-Length: +1"], "a"),
        (["Content-Length: -1"], "a"),
        (["Content-Length: 0x1"], "a"),
        (["Content-Length: 99999999999999999999999"], "a"),
        (["Transfer-Encoding: gzip, chunked"], "0\r\n\r\n"),
        (["Transfer-Encoding: xchunked"], "0\r\n\r\n"),
        (["Transfer-Encoding: identity"], ""),
        (["Transfer-Encoding : chunked"], "0\r\n\r\n"),
        (["Transfer-Encoding:\r\n chunked"], "0\r\n\r\n"),
        ([CHUNKED, CHUNKED], "0\r\n\r\n"),
        ([CHUNKED], "zz\r\n"),
        ([CHUNKED], "-1\r\n"),
        ([CHUNKED], "ffffffffffffffffff\r\n"),
        ([CHUNKED], "1\r\naX\r\n0\r\n\r\n"),
        ([CHUNKED], "1\na\n0\n\n"),
        (["X: a\r\n b"], ""),
        (["X : a"], ""),
        ([" X: a"], ""),
        (["X: a\rb"], ""),
        (["X: a\0b"], ""),
        ([": a"], ""),
        (["no colon"], ""),
        (["Host: second"], ""),
        (["Connection: Upgrade", "Upgrade: websocket", "Content-Length: 3"], "abc"),
    ],
)
async def test_an_ambiguous_request_is_refused_and_its_connection_closed(
    stage: Stage, headers: list[str], body: str
) -> None:
    wire = await stage.connect()
    answer = await wire.ask(stage.request("POST /api/v1/namespaces", *headers) + body.encode())
    assert answer.status == 400
    assert orjson.loads(answer.body)["reason"] == "BadRequest"
    assert await wire.is_closed()
    assert not any(seen.body for seen in stage.api.seen)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_an_invalid_request_is_refused(stage: Stage, raw: bytes) -> None:
    wire = await stage.connect()
    assert (await wire.ask(raw)).status == 400
    assert await wire.is_closed()
    assert not stage.api.seen


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 300 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 500_000,
    ],
)
async def test_a_head_has_a_largest_size(stage: Stage, raw: bytes) -> None:
    wire = await stage.connect()
    assert (await wire.ask(raw)).status == 431
    assert await wire.is_closed()


@pytest.mark.parametrize("endless", [b"1;" + b"a" * 200_000, b"0\r\nX: " + b"a" * 200_000])
async def test_data_between_chunks_is_limited(stage: Stage, endless: bytes) -> None:
    stage.api.heads_only = True
    wire = await stage.connect()
    answer = await wire.ask(stage.request("POST /x", CHUNKED) + endless)
    assert answer.status in {200, 431}
    assert await wire.is_closed()


async def test_a_request_after_a_valid_one_is_validated_too(stage: Stage) -> None:
    wire = await stage.connect()
    wire.send(stage.request() + stage.request("GET /smuggled", "Content-Length: 1", CHUNKED))
    assert [(await wire.answer()).status for _ in range(2)] == [200, 400]
    assert [seen.target for seen in stage.api.seen] == ["/api/v1/pods"]


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_an_invalid_answer_is_not_forwarded(stage: Stage, raw: bytes) -> None:
    stage.api.answers(raw)
    assert (await stage.get()).status == 503


async def test_data_after_an_answer_is_dropped(stage: Stage) -> None:
    stage.api.answers(stage.reply(b"first") + stage.reply(b"surplus"), stage.reply(b"second"))
    wire = await stage.connect()
    assert [(await wire.ask(stage.request())).body for _ in range(2)] == [b"first", b"second"]


async def test_silent_clients_are_sent_away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.core.proxy.server._HEAD_TIMEOUT", 0.05)
    wire = await stage.connect()
    wire.send(b"GET / HT")
    assert await wire.is_closed()


_NAMES = st.text("abcXYZ-_09", min_size=1, max_size=20)
_VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=40)
_PATHS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=80)
_OWN = {"host", "authorization", "connection", "content-length", "transfer-encoding", "upgrade", "expect", "via"}
_HOP = {"keep-alive", "proxy-connection", "te", "trailer"}


@pytest.mark.lengthy
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(path=_PATHS, headers=st.lists(st.tuples(_NAMES, _VALUES), max_size=12), body=st.binary(max_size=300))
def test_whatever_is_valid_passes_as_it_is(
    with_stage: Callable[..., None], path: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    mine = [(name, value) for name, value in headers if name.lower() not in _OWN | _HOP]

    async def check(stage: Stage) -> None:
        stage.api.answers(stage.reply(body))
        wire = await stage.connect()
        lines = [f"{name}: {value}" for name, value in mine]
        answer = await wire.ask(stage.request(f"POST /{path}", *lines, body=body))
        assert (answer.status, answer.body) == (200, body)
        (seen,) = stage.api.seen
        assert seen.target == f"/{path}"
        assert seen.body == body
        assert [header for header in seen.headers if header in mine] == mine
        wire.close()

    with_stage(check)


@pytest.mark.lengthy
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(raw=st.lists(st.binary(max_size=60) | st.sampled_from([b"\r\n", b"GET / HTTP/1.1\r\n", b"Host: a\r\n"])))
def test_no_bytes_break_the_proxy(with_stage: Callable[..., None], raw: list[bytes]) -> None:
    async def check(stage: Stage) -> None:
        wire = await stage.connect()
        for piece in raw:
            wire.send(piece)
        wire.writer.write_eof()
        async with asyncio.timeout(patience()):
            answered = await wire.reader.read()
        wire.close()
        assert not answered or answered.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 431"))
        assert not stage.api.seen
        assert (await stage.get()).status == 200

    with_stage(check)


async def test_malformed_requests_of_clients_that_are_gone_are_one_counted_line_a_minute(
    staged: Callable[..., AbstractAsyncContextManager[Stage]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs() as logs:
        async with staged() as stage:
            malformed = stage.proxy._malformed
            for lines in (0, 1):
                for _ in range(30):
                    send_malformed_and_reset(stage.port)
                await until(lambda: malformed._count == 30)
                assert len(rejected(logs)) == lines
                malformed.log()  # as after a minute
            monkeypatch.setattr("runner.core.proxy.server._BETWEEN_LINES", 0.01)
            send_malformed_and_reset(stage.port)
            await until(lambda: len(rejected(logs)) == 3)
            assert not stage.proxy._clients
            assert (await stage.get()).status == 200
    assert [each["count"] for each in rejected(logs)] == [30, 30, 1]
    assert not [each for each in logs if "traceback" in each]


def send_malformed_and_reset(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")


def rejected(logs: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [each for each in logs if each["event"].startswith("Rejected malformed requests")]
