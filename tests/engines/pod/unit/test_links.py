"""Frames between an agent and the engine, over real connections that end at every point."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import orjson
import pytest

from runner.agent import frames
from runner.agent.bounds import LONGEST_EVENT
from runner.agent.frames import ALPN_HTTP, ALPN_LINK, ALPN_METRICS, HEADER, Exit, Kind
from runner.core.proxy.http import limits
from runner.core.proxy.http.ends import ClientConnection
from runner.core.proxy.http.limits import LARGE, Turns
from runner.engines.pod.certificates import Certificates, issue, make_authority, server_context
from runner.engines.pod.connection import MalformedError, parse
from runner.engines.pod.links import AgentEnd, ClosedError, Link, Links
from runner.engines.pod.setup import _listen
from runner.engines.pod.spool import Frame
from tests.kit.agents import NAME, ORDER, RUN, TOKEN, Client, Operator, Pod, ending, free_port, receive_all
from tests.kit.wait import patience, until

StartPod = Callable[..., Pod]
Connect = Callable[..., Awaitable[Client]]
LINES = [b'{"status": "starting"}', b"", *(b'{"counter": %d}' % n for n in range(8)), b"x" * 70_000, b'{"eof": true}']


OUTPUT = b"".join(line + b"\n" for line in LINES)
FRAMES = [
    *(Frame(number, line, end=False) for number, line in enumerate(LINES, 1)),
    Frame(len(LINES) + 1, ending(), end=True),
]


async def greeted(client: Connect, **fields: Any) -> Client:
    """Connect as an agent that the operator welcomes."""
    peer = await client()
    peer.hello(**fields)
    assert (await peer.receive())[0] == Kind.WELCOME
    return peer


async def test_a_run_gets_its_order_and_its_frames_arrive_once_and_in_order(
    operator: Operator, link: Link, pod: StartPod, logged: dict[int, bytes]
) -> None:
    agent_ = pod()
    await until(lambda: agent_.began)
    assert agent_.order.read_bytes() == ORDER
    await until(lambda: link.is_connected)
    agent_.spool.add(OUTPUT)
    agent_.spool.end(ending())
    assert await receive_all(link) == FRAMES
    for frame in FRAMES:
        link.acknowledge(frame.number, f"{frame.number} ü\n")
    assert await link.recorded(20)
    assert await agent_.keeping is Exit.DONE
    assert logged[1].decode() == "".join(f"{frame.number} ü\n" for frame in FRAMES)
    assert (link.connects, operator.links.frames, operator.links.resumes) == (1, len(FRAMES), 0)
    assert not link.is_connected


class Cutter:
    """Passes bytes between an agent and the operator, and cuts the first connection after so many of them."""

    def __init__(self, port: int, limit: int, *, of_agent: bool) -> None:
        self._port, self._limit, self._of_agent = port, limit, of_agent
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        above, upstream = await asyncio.open_connection("127.0.0.1", self._port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, limit: int) -> None:
            while limit > 0 and (piece := await source.read(min(4096, limit))):
                limit -= len(piece)
                target.write(piece)
                await target.drain()

        endless = 1 << 40
        copies = [
            asyncio.create_task(copy(reader, upstream, self._limit if is_first and self._of_agent else endless)),
            asyncio.create_task(copy(above, writer, self._limit if is_first and not self._of_agent else endless)),
        ]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for each in copies:
            each.cancel()
        writer.transport.abort()
        upstream.transport.abort()
        await asyncio.gather(*copies, return_exceptions=True)


@pytest.mark.lengthy
@pytest.mark.parametrize("of_agent", [True, False])
async def test_a_connection_that_ends_at_any_byte_loses_and_repeats_nothing(
    operator: Operator, pod: StartPod, monkeypatch: pytest.MonkeyPatch, *, of_agent: bool
) -> None:
    monkeypatch.setattr(frames, "PIECE", 4096)  # more records, so that a cut loses a part of the frames
    for limit in [1, 300, 800, *range(1000, 1700, 50), *range(2_000, 72_000, 7_000)]:
        link = operator.open()
        async with Cutter(operator.port, limit, of_agent=of_agent) as cutter:
            agent_ = pod(operator.settings(server=f"127.0.0.1:{cutter.port}"), OUTPUT)
            assert await receive_all(link) == FRAMES, limit
            assert agent_.order.read_bytes() == ORDER, limit
            assert await link.recorded(20), limit
            assert await agent_.keeping is Exit.DONE
            assert cutter.connections == 2, limit
        link.close()


@pytest.mark.lengthy
async def test_a_restarted_operator_gets_the_frames_that_it_has_not_applied(operator: Operator, pod: StartPod) -> None:
    pod(output=OUTPUT)
    for applied in [0, *range(len(FRAMES))]:
        link = operator.open(applied)
        assert await receive_all(link) == FRAMES[applied:]
        assert link.connects == 1
        await operator.links.close()
        with pytest.raises(ClosedError):
            await link.receive()
        await operator.start()
    link = operator.open(len(FRAMES))
    assert await link.recorded(20)


async def test_texts_of_a_replay_and_of_a_lost_connection_are_in_the_log_once(
    operator: Operator, pod: StartPod, logged: dict[int, bytes]
) -> None:
    pod(output=OUTPUT)
    link = operator.open()
    await receive_all(link)
    for frame in FRAMES[:3]:
        link.acknowledge(frame.number, f"{frame.number},")
    await until(lambda: logged[1] == b"1,2,3,")
    await operator.links.close()
    await operator.start()
    link = operator.open()
    await receive_all(link)
    await until(lambda: link.is_connected)
    assert link._connection is not None
    link._connection._writer.transport.abort()
    for frame in FRAMES:
        link.acknowledge(frame.number, f"{frame.number},")
    await until(lambda: logged[1] == b"".join(b"%d," % frame.number for frame in FRAMES))


async def test_texts_that_an_agent_does_not_read_use_limited_memory(link: Link) -> None:
    for number in range(1, 101):
        link.acknowledge(number, "x" * 10_000)
    assert link._text_size <= 256 * 1024
    assert link._unsent[-1][0] == 100
    assert link._text_size == sum(len(text) for _, text in link._unsent)


async def test_an_agent_confirms_texts_so_that_the_operator_can_forget_them(
    operator: Operator, pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PING_INTERVAL", 0.01)
    link = operator.open()
    pod(output=OUTPUT)
    await receive_all(link)
    link.acknowledge(1, "text")
    assert link._text_size == 4
    await until(lambda: link._text_size == 0)


async def test_a_wrong_token_and_an_unknown_run_get_the_same_response(operator: Operator, client: Connect) -> None:
    operator.open()
    answers: list[bytes] = []
    for fields in ({"token": "wrong"}, {"run": "unknown"}, {"run": "unknown", "token": ""}, {"token": "ü"}):
        peer = await client()
        peer.hello(**fields)
        answers.append(await peer.rest())
    assert len(set(answers)) == 1
    kind, _, length = HEADER.unpack_from(answers[0])
    assert kind == Kind.REFUSED
    assert orjson.loads(answers[0][HEADER.size :]) == {"reason": "the run is not here", "final": False}
    assert length == len(answers[0]) - HEADER.size
    assert operator.links.refused == 4


async def test_an_agent_gives_its_token_to_no_server_of_another_authority(
    operator: Operator, link: Link, pod: StartPod, logged: dict[int, bytes], tmp_path: Path
) -> None:
    for files in ({"ca.crt": make_authority()[0].decode()}, {"name": "other.test"}):
        agent_ = pod(operator.settings(**files))
        await until(lambda: b"certificate verify failed" in logged[2])
        assert logged[2].count(b"\n") == 1
        logged[2] = b""
        agent_.keeping.cancel()
    assert link.connects == 0


@pytest.mark.lengthy
async def test_an_agent_reports_a_problem_once_and_reads_changed_settings(
    operator: Operator, link: Link, pod: StartPod, logged: dict[int, bytes]
) -> None:
    agent_ = pod(operator.settings(token="wrong"))
    await until(lambda: operator.links.refused > 3)
    assert logged[2].decode() == (
        f"ansible-operator: cannot connect to the operator at 127.0.0.1:{operator.port}, address 127.0.0.1: "
        "it refuses this run: the run is not here\n"
    )
    operator.settings()
    await until(lambda: link.is_connected)
    assert not agent_.keeping.done()


async def test_after_a_fence_nothing_of_the_run_is_accepted(
    operator: Operator, link: Link, pod: StartPod, client: Connect
) -> None:
    agent_ = pod()
    agent_.spool.add(b"1\n2\n")
    await until(lambda: operator.links.frames == 2)
    link.fence()
    agent_.spool.add(b"3\n")
    with pytest.raises(ClosedError):
        await link.receive()
    assert await agent_.keeping is Exit.REFUSED
    peer = await client()
    peer.hello(last=3)
    assert orjson.loads((await peer.receive())[2]) == {"reason": "the run was ended", "final": True}
    await peer.rest()
    assert operator.links.frames == 2
    other = await client()
    other.hello(last=3, token="wrong")
    assert orjson.loads((await other.receive())[2])["final"] is False


async def test_a_request_to_stop_reaches_an_agent_that_connects_later_and_replaces_the_order(
    link: Link, pod: StartPod
) -> None:
    link.stop()
    agent_ = pod()
    await until(lambda: agent_.stops)
    assert not agent_.began
    agent_.spool.end(ending(None, error="stopped"))
    frames = await receive_all(link)
    assert parse(AgentEnd, frames[0].payload) == AgentEnd(None, "stopped", "", 0, 0, "")


async def test_of_two_operators_behind_one_name_the_agent_uses_the_one_with_the_run(
    operator: Operator, pod: StartPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Operator(tmp_path, operator.context, operator.ca, host="127.0.0.2", port=operator.port)
    await other.start()
    try:
        link = other.open()

        def resolve(host: str, port: int, *args: object, **options: object) -> list[object]:
            addresses = ("127.0.0.1", "127.0.0.2") if host == "headless.test" else (host,)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        agent_ = pod(operator.settings(server=f"headless.test:{operator.port}"))
        await until(lambda: link.is_connected)
        assert operator.links.refused == 1
        # The run moves to the other replica.
        second = operator.open()
        link.close()
        agent_.spool.add(OUTPUT)
        agent_.spool.end(ending())
        assert await receive_all(second) == FRAMES
    finally:
        await other.links.close()


async def test_a_newer_connection_of_the_agent_replaces_the_older_one(link: Link, client: Connect) -> None:
    older, newer = await greeted(client), await client()
    older.send(Kind.DATA, 1, b"first")
    assert (await link.receive()).payload == b"first"
    newer.hello(last=1)
    assert await newer.receive() == (Kind.WELCOME, 0, b'{"applied":1}')
    assert await older.rest() == b""
    newer.send(Kind.DATA, 2, b"second")
    assert (await link.receive()).payload == b"second"
    assert link.connects == 2


async def test_a_second_agent_of_a_run_gets_no_order(link: Link, client: Connect) -> None:
    first, second = await greeted(client), await client()
    second.hello(agent="b", has_order=False)
    assert orjson.loads((await second.receive())[2]) == {"reason": "another agent has this run", "final": False}
    first.send(Kind.DATA, 1, b"still here")
    assert (await link.receive()).payload == b"still here"


@pytest.mark.parametrize("fields", [{"last": 1}, {"last": 0, "has_order": False}])
async def test_an_agent_that_has_lost_frames_gets_no_order(
    operator: Operator, client: Connect, fields: dict[str, object]
) -> None:
    link = operator.open(applied=2)
    peer = await client()
    peer.hello(**fields)
    kind, _, payload = await peer.receive()
    assert (kind, orjson.loads(payload)["final"]) == (Kind.REFUSED, False)
    with pytest.raises(MalformedError, match="frames are lost"):
        await link.receive()


async def test_another_protocol_is_refused_with_its_reason(operator: Operator, client: Connect) -> None:
    operator.open()
    peer = await client()
    peer.hello(protocol=2)
    assert b"protocol 2 is not supported" in (await peer.receive())[2]


FIRST = HEADER.pack(Kind.DATA, 1, 3) + b"one"
MALFORMED = {
    "a gap": (FIRST + HEADER.pack(Kind.DATA, 3, 0), "frame 3 instead of 2"),
    "a repeated frame": (FIRST + FIRST, "frame 1 instead of 2"),
    "number 0": (FIRST + HEADER.pack(Kind.DATA, 0, 0), "frame 0 instead of 2"),
    "the largest number": (FIRST + HEADER.pack(Kind.END, 2**64 - 1, 0), "frame 18446744073709551615 instead of 2"),
    "a long frame": (FIRST + HEADER.pack(Kind.DATA, 2, 2 * LONGEST_EVENT + 1), "DATA with 33554433 bytes"),
    "an unsolicited answer": (FIRST + HEADER.pack(Kind.PONG, 0, 0), "PONG without PING"),
    "a long ending": (FIRST + HEADER.pack(Kind.END, 2, 65537), "END with 65537 bytes"),
    "a long answer": (FIRST + HEADER.pack(Kind.PONG, 0, 1), "PONG with 1 bytes"),
    "a second hello": (FIRST + HEADER.pack(Kind.HELLO, 0, 0), "unknown kind 1"),
    "a kind of the operator": (FIRST + HEADER.pack(Kind.WELCOME, 0, 0), "unknown kind 16"),
    "an unknown kind": (FIRST + HEADER.pack(255, 0, 0), "unknown kind 255"),
    "an ending without JSON": (FIRST + HEADER.pack(Kind.END, 2, 1) + b"{", "invalid JSON"),
    "an ending that is a list": (FIRST + HEADER.pack(Kind.END, 2, 2) + b"[]", "not an object"),
    "an ending without fields": (FIRST + HEADER.pack(Kind.END, 2, 2) + b"{}", "code is missing"),
    "an ending with a wrong type": (
        FIRST + HEADER.pack(Kind.END, 2, len(ending(code=True))) + ending(code=True),
        "code is missing or has another type",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_frame_fails_its_run_after_the_valid_frames_and_no_other_run(
    operator: Operator, client: Connect, pod: StartPod, case: str
) -> None:
    data, message = MALFORMED[case]
    link, neighbour = operator.open(), operator.open(run="run-2", token="token-2")
    agent_ = pod(operator.settings(run="run-2", token="token-2"))
    await until(lambda: agent_.began)
    peer = await greeted(client)
    peer.writer.write(data)
    assert await asyncio.wait_for(link.receive(), patience()) == Frame(1, b"one", end=False)
    for _ in range(2):
        with pytest.raises(MalformedError, match=message):
            await asyncio.wait_for(link.receive(), patience())
    assert not link.is_connected
    await peer.rest()
    again = await client()
    again.hello(last=1)
    assert (await again.receive())[0] == Kind.REFUSED
    agent_.spool.add(OUTPUT)
    agent_.spool.end(ending())
    assert await receive_all(neighbour) == FRAMES
    assert neighbour.connects == 1


async def test_a_frame_after_the_last_one_is_malformed(link: Link, client: Connect) -> None:
    peer = await client()
    peer.hello()
    peer.send(Kind.END, 1, ending())
    peer.send(Kind.DATA, 2)
    assert (await link.receive()).end
    with pytest.raises(MalformedError, match="frame 2 after the last one, 1"):
        await link.receive()


HELLO_SIZE = frames.LARGEST_HELLO
BAD_HELLOS = {
    "nothing of TLS above it": b"GET / HTTP/1.1\r\n\r\n" * 4,
    "another kind": HEADER.pack(Kind.DATA, 1, 0),
    "too long": HEADER.pack(Kind.HELLO, 0, HELLO_SIZE + 1),
    "endless": b"\xff" * 200_000,
    "no JSON": HEADER.pack(Kind.HELLO, 0, 4) + b"\xff\xfe\xfd\xfc",
    "deep JSON": HEADER.pack(Kind.HELLO, 0, HELLO_SIZE) + b"[" * HELLO_SIZE,
    "empty": HEADER.pack(Kind.HELLO, 0, 0),
    "a number": HEADER.pack(Kind.HELLO, 0, 1) + b"1",
    "wrong types": HEADER.pack(Kind.HELLO, 0, 11) + b'{"run": {}}',
    "half a character": HEADER.pack(Kind.HELLO, 0, 17) + b'{"run": "\\ud800"}',
}


@pytest.mark.parametrize("case", BAD_HELLOS)
async def test_an_invalid_hello_closes_its_connection_without_an_answer(
    operator: Operator, link: Link, client: Connect, pod: StartPod, case: str
) -> None:
    peer = await client()
    peer.writer.write(BAD_HELLOS[case])
    assert await peer.rest() == b""
    assert operator.links.refused == 1
    pod(output=OUTPUT)
    assert await receive_all(link) == FRAMES


@pytest.mark.lengthy
async def test_a_client_that_sends_nothing_is_closed(
    operator: Operator, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRST", 1.0)  # in which a client of a busy machine may not end its handshake
    peer = await client()
    assert await peer.rest() == b""
    reader, writer = await asyncio.open_connection("127.0.0.1", operator.port)
    async with asyncio.timeout(patience()):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    assert not operator.links._connections
    assert not operator.links.newcomers


async def test_many_connections_without_a_token_do_not_displace_agents(
    operator: Operator, client: Connect, pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.links.newcomers, "_most", 3)
    link = operator.open()
    agent_ = pod()
    await until(lambda: link.is_connected)
    peers = [await client() for _ in range(5)]
    assert await peers[0].rest() == await peers[1].rest() == b""
    assert len(operator.links.newcomers) == 3
    assert operator.links.newcomers.closed == 2
    peers[-1].hello(token="wrong")
    await peers[-1].rest()
    agent_.spool.add(OUTPUT)
    agent_.spool.end(ending())
    assert await receive_all(link) == FRAMES


async def test_large_frames_of_several_runs_wait_for_their_turns(
    operator: Operator, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.links, "_turns", Turns(1, 60))
    large, runs = b"x" * (LARGE + 1), ("run-1", "run-2")
    opened = [operator.open(run=run, token=run) for run in runs]
    peers = [await greeted(client, run=run, token=run) for run in runs]
    for peer in peers:
        peer.send(Kind.DATA, 1, b"small")
    for link in opened:
        assert (await link.receive()).payload == b"small"
    peers[0].send(Kind.DATA, 1 + 1, large)
    await until(lambda: len(opened[0]._frames) == 1)
    peers[1].send(Kind.DATA, 1 + 1, large)
    await until(lambda: operator.links._turns._places._waiters)
    assert not opened[1]._frames
    assert (await opened[0].receive()).payload == large
    waiting = asyncio.ensure_future(opened[1].receive())
    peers[0].send(Kind.DATA, 3, b"next")
    assert (await opened[0].receive()).payload == b"next"  # the engine has processed the large one
    assert (await waiting).payload == large
    opened[1].fence()
    peers[0].send(Kind.DATA, 4, large)
    assert (await opened[0].receive()).payload == large


async def test_each_of_several_large_frames_of_a_run_has_a_turn_that_ends(
    operator: Operator, link: Link, client: Connect
) -> None:
    peer = await client()
    peer.hello()
    for number in range(1, 8):
        peer.send(Kind.DATA, number, b"x" * (LARGE + 1))
    await until(lambda: len(link._frames) == 2)  # more would need another turn
    for number in range(1, 8):
        assert (await asyncio.wait_for(link.receive(), patience())).number == number
    link.fence()
    assert operator.links._turns._places._value == 2


async def test_an_agent_that_sends_a_large_frame_too_slowly_loses_its_turn(
    operator: Operator, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.links, "_turns", Turns(1, 0.2))
    link = operator.open()
    for _ in range(2):
        peer = await greeted(client)
        peer.writer.write(HEADER.pack(Kind.DATA, 1, LARGE + 1) + b"x")
        await peer.rest()
    peer = await greeted(client)
    monkeypatch.setattr(operator.links._turns, "_seconds", 60)
    peer.send(Kind.DATA, 1, b"x" * (LARGE + 1))
    assert len((await link.receive()).payload) == LARGE + 1


async def test_a_silent_agent_is_disconnected_and_may_return(
    operator: Operator, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PING_INTERVAL", 0.01)
    monkeypatch.setattr(frames, "SILENCE", 0.5)
    link = operator.open()
    peer = await client()
    peer.hello()
    assert HEADER.pack(Kind.PING, 0, 0) in await peer.rest()
    assert not link.is_connected
    await greeted(client)


async def test_an_agent_replaces_a_connection_on_which_the_operator_is_silent(
    operator: Operator, pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "SILENCE", 0.05)  # less than the interval of the pings
    link = operator.open()
    pod()
    await until(lambda: link.connects >= 2)


async def test_frames_that_the_engine_does_not_receive_stay_with_the_agent(link: Link, pod: StartPod) -> None:
    agent_ = pod()
    line = b"y" * 10_000 + b"\n"
    count = 2_000
    for _ in range(count):
        agent_.spool.add(line)
    agent_.spool.end(ending())
    await until(lambda: link._size > 1024 * 1024)
    await asyncio.sleep(0.1)
    assert link._size < 2 * 1024 * 1024
    frames = await receive_all(link)
    assert [frame.number for frame in frames] == list(range(1, count + 2))
    assert link.connects == 1


async def test_an_order_that_cannot_be_read_is_an_error_of_the_run(operator: Operator, pod: StartPod) -> None:
    link = operator.links.open(RUN, TOKEN, operator.folder / "missing")
    pod()
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(link.receive(), patience())


async def test_an_agent_that_has_not_ended_is_not_taken_for_one_that_has(link: Link, client: Connect) -> None:
    peer = await greeted(client)
    assert not await link.recorded(0.01)
    peer.close()
    assert not await link.recorded(0.01)
    last = await greeted(client)
    assert (await last.receive())[0] == Kind.RECORDED
    last.writer.close()
    assert await link.recorded(20)


async def test_a_closed_run_is_unknown_and_can_be_opened_again(operator: Operator, link: Link, client: Connect) -> None:
    with pytest.raises(ValueError, match="open already"):
        operator.open()
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0)
    link.close()
    with pytest.raises(ClosedError):
        await waiting
    peer = await client()
    peer.hello()
    assert orjson.loads((await peer.receive())[2])["final"] is False
    operator.open()


async def test_one_port_serves_api_calls_and_no_other_protocol(operator: Operator, client: Connect) -> None:
    http = await client(ALPN_HTTP)
    http.writer.write(b"GET / HTTP/1.1")
    assert await http.reader.readexactly(19) == b"echo:GET / HTTP/1.1"
    assert await (await client("")).rest() == b""
    assert await (await client("h2")).rest() == b""


@pytest.mark.parametrize("end", ["fence", "close"])
async def test_metrics_pass_until_the_run_ends(link: Link, client: Connect, end: str) -> None:
    peer = await client(ALPN_METRICS)
    peer.hello_of_metrics()
    peer.writer.write(b"POST /metrics")
    assert await peer.reader.readexactly(21) == b"metrics:POST /metrics"
    getattr(link, end)()
    assert await peer.rest() == b""
    late = await client(ALPN_METRICS)
    late.hello_of_metrics()
    assert await late.rest() == b""


@pytest.mark.parametrize("protocol", [ALPN_METRICS, ALPN_HTTP])
async def test_a_connection_that_has_ended_does_not_count(
    operator: Operator, link: Link, client: Connect, protocol: str
) -> None:
    counted: WeakSet[Any] = link._metrics

    def accept() -> ClientConnection:
        counted.add(connection := ClientConnection())
        return connection

    operator.links._http, operator.links._metrics = accept, asyncio.Protocol
    gc.disable()  # the number must not depend on it
    try:
        for _ in range(3):
            peer = await client(protocol)
            if protocol == ALPN_METRICS:
                peer.hello_of_metrics()
            await until(lambda: counted)
            peer.close()
            await until(lambda: not counted)
    finally:
        gc.enable()


async def test_metrics_of_a_run_are_refused_if_the_operator_takes_none(operator: Operator, client: Connect) -> None:
    operator.links._metrics = None
    operator.open()
    peer = await client(ALPN_METRICS)
    peer.hello_of_metrics()
    assert await peer.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [
        frames.encode_json(Kind.METRICS, {"run": RUN, "token": "wrong"}),
        frames.encode_json(Kind.METRICS, {"run": "unknown", "token": TOKEN}),
        frames.encode_json(Kind.METRICS, {"run": "unknown", "token": ""}),
        frames.encode_json(Kind.METRICS, {"run": RUN}),
        frames.encode_json(Kind.HELLO, {"run": RUN, "token": TOKEN}),
        HEADER.pack(Kind.METRICS, 0, frames.LARGEST_HELLO + 1),
        b"POST /metrics HTTP/1.1\r\n\r\n",
    ],
)
async def test_metrics_without_the_token_of_a_run_are_refused(operator: Operator, client: Connect, sent: bytes) -> None:
    operator.open()
    peer = await client(ALPN_METRICS)
    peer.writer.write(sent)
    assert await peer.rest() == b""


def test_a_certificate_is_for_its_names_and_one_that_is_not_of_the_authority_is_an_error(
    authority: tuple[bytes, bytes],
) -> None:
    server_context(*issue(authority, [NAME, "10.0.0.1"]))
    with pytest.raises(ValueError, match=r"load|PEM|deserialize"):
        issue((b"none", b"none"), [NAME])
    with pytest.raises(ssl.SSLError):
        server_context(issue(authority, [NAME])[0], issue(authority, [NAME])[1])


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.protocol = asyncio.Protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_an_address_without_a_host_serves_clusters_with_ipv6_only() -> None:
    server, port = Links(asyncio.Protocol), free_port()
    assert await _listen(server, f":{port}", Certificates(make_authority(), [NAME])) == port
    for host in ("127.0.0.1", "::1"):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
    await server.close()


@pytest.mark.virtual_time
async def test_an_agent_whose_frames_are_not_read_does_not_count_as_silent(tmp_path: Path) -> None:
    server = Links(asyncio.Protocol, asyncio.Protocol)
    link = server.open(RUN, TOKEN, tmp_path / "order")
    transport = Transport()
    transport.set_protocol(server.choose(ALPN_LINK, lambda: None))
    transport.protocol.connection_made(transport)
    hello = {"protocol": 1, "run": RUN, "token": TOKEN, "agent": "a", "has_order": True, "last": 0}
    transport.protocol.data_received(frames.encode(Kind.HELLO, payload=orjson.dumps({**hello, "acknowledged": 0})))
    transport.protocol.data_received(frames.encode(Kind.DATA, 1, b"z" * 2_000_000))
    await asyncio.sleep(1000)
    assert not transport.is_aborted
    assert transport.written.count(HEADER.pack(Kind.PING, 0, 0)) >= 99
    assert (await link.receive()).number == 1
    await asyncio.sleep(frames.SILENCE - 1)
    assert not transport.is_aborted
    await asyncio.sleep(2 * frames.PING_INTERVAL)
    assert transport.is_aborted
