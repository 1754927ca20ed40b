"""What a client can occupy: connections without a token, connections of a run, and large content."""

from __future__ import annotations

import asyncio
import gc
import resource
import time

import orjson
import pytest

from runner.core.kube import decode
from runner.core.proxy import content, server
from runner.core.proxy.content import APPLY, JSON
from runner.core.proxy.http import limits
from runner.core.proxy.http.limits import Newcomers, Turns
from tests.kit.forks import seen
from tests.kit.wait import patience, until
from tests.unit.proxy.stage import Message, Stage


async def test_the_address_with_the_most_newcomers_loses_its_oldest_one() -> None:
    closed: list[str] = []
    newcomers = Newcomers("test", most=3)
    for host in ("a", "b", "b", "b", "b"):
        newcomers.add((host, 1), lambda host=host: closed.append(host))  # type: ignore[misc]
    assert closed == ["b", "b"]
    assert len(newcomers) == 3


@pytest.mark.virtual_time
async def test_newcomers_are_closed_in_time_unless_they_send_a_token() -> None:
    closed: list[str] = []
    newcomers = Newcomers("test")
    newcomers.add("a", lambda: closed.append("silent"))
    admitted = newcomers.add("b", lambda: closed.append("admitted"))
    admitted()
    await asyncio.sleep(9)
    assert closed == []
    await asyncio.sleep(2)
    assert closed == ["silent"]
    admitted()


@pytest.mark.virtual_time
async def test_a_turn_has_a_time_limit_until_all_has_arrived() -> None:
    slow: list[str] = []
    turns = Turns(1, 60)
    turn = await turns.take(lambda: slow.append("first"))
    turn.arrived()
    waiting = asyncio.create_task(turns.take(lambda: slow.append("second")))
    await asyncio.sleep(100)
    assert not waiting.done()
    turn.end()
    turn.end()
    second = await waiting
    await asyncio.sleep(61)
    assert slow == ["second"]
    second.end()


async def test_a_client_without_a_valid_token_is_disconnected(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST", 0.5)
    silent, wrong, right = [await stage.connect() for _ in range(3)]
    assert (await right.ask(stage.request())).status == 200
    token, stage.token = stage.token, "wrong"
    assert (await wrong.ask(stage.request())).status == 401
    stage.token = token
    async with asyncio.timeout(patience()):
        for each in (silent, wrong):
            assert await each.reader.read() == b""
    assert (await right.ask(stage.request())).status == 200


async def test_a_run_has_a_limited_number_of_connections_and_its_end_closes_the_idle_ones(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    first, second, third = [await stage.connect() for _ in range(3)]
    for each in (first, second, first):
        assert (await each.ask(stage.request())).status == 200
    assert (await third.ask(stage.request())).status == 429
    assert await third.is_closed()
    assert (await second.ask(stage.request())).status == 200
    first.close()
    active = stage.identities.active(stage.token)
    assert active is not None
    await until(lambda: len(active.connections) == 1)
    assert (await (await stage.connect()).ask(stage.request())).status == 200
    stage.identities.revoke(stage.token)
    async with asyncio.timeout(patience()):
        assert await second.reader.read() == b""


async def test_an_upgraded_connection_that_has_ended_does_not_count(stage: Stage) -> None:
    async def script(_: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        while await reader.read(100):
            pass

    stage.api.script = script
    active = stage.identities.active(stage.token)
    assert active is not None
    gc.disable()  # the number must not depend on it
    try:
        for _ in range(3):
            wire = await stage.connect()
            wire.send(stage.request("GET /api/v1/namespaces/a/pods/b/exec", "Connection: Upgrade", "Upgrade: SPDY/3.1"))
            assert (await stage.read_head(wire.reader)).status == 101
            wire.close()
            del wire
        await until(lambda: not active.connections)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("media", "data"),
    [
        (JSON, b"{" + b'"a": [' + b"[]," * decode.MOST_VALUES + b"[]]}"),
        (APPLY, b"a: [" + b"[]," * decode.MOST_VALUES + b"[]]"),
        (APPLY, b"a:\n" + b"- \n" * 30_000),
        (APPLY, b"a: &a [x, x]\nb: [*a, *a]\n"),
    ],
)
def test_content_with_too_many_values_or_with_aliases_is_not_parsed(media: str, data: bytes) -> None:
    assert content.parse(media, data) == (None, False)


@pytest.mark.parametrize("data", [b"a: !!bool x", b"a: !!int ''"])
def test_a_yaml_tag_that_does_not_fit_its_value_is_no_error_of_the_proxy(data: bytes) -> None:
    assert content.parse(APPLY, data) == (None, True)


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("start", "part", "end", "most"),
    [('"', '\\"', "", 2_000_000), ('"', "a", '"x', 4_000_000), ("", '["', "", 1_000_000)],
)
def test_invalid_json_of_any_form_needs_time_in_proportion_and_little_memory(
    start: str, part: str, end: str, most: int
) -> None:
    def needed(count: int) -> tuple[float, int]:
        raw = (start + part * count + end).encode()
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with pytest.raises(orjson.JSONDecodeError):
            decode.loads(raw)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return time.process_time() - began, grown

    (much, grown), (little, _) = seen(lambda: [needed(most), needed(most // 10)])
    assert much < 0.1 + 40 * little  # 100 times as long if each place were read from the start
    assert grown < 60_000  # KiB


async def test_large_content_of_a_run_is_held_one_call_at_a_time(stage: Stage) -> None:
    """Requests for Secrets are read completely, because their values are masked."""
    body = orjson.dumps({"kind": "Secret", "data": {"a": "x" * (limits.LARGE + 1)}})
    slow, quick = [await stage.connect() for _ in range(2)]
    target = "POST /api/v1/namespaces/ns/secrets"
    slow.send(stage.request(target, body=body)[:-1])
    active = stage.identities.active(stage.token)
    assert active is not None
    await until(active.large.locked)
    quick.send(stage.request(target, body=body))
    assert (await (await stage.connect()).ask(stage.request(target, body=b"{}"))).status == 200
    assert not quick.reader._buffer  # type: ignore[attr-defined]
    slow.send(body[-1:])
    assert (await slow.answer()).status == (await quick.answer()).status == 200
    await until(lambda: not active.large.locked())
