"""Bounds of what an agent reads and sends: JSON, frames and lines of output."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.agent import frames
from runner.agent.bounds import LONGEST_EVENT, exceeds
from runner.agent.frames import HEADER, AgentError
from runner.agent.spool import Spool, shortened
from tests.kit.wait import patience


def _event(result: Any, stdout: str = "ok: [localhost]") -> dict[str, Any]:
    data = {"host": "localhost", "task": "list", "res": result}
    return {"uuid": "0-1", "counter": 3, "event": "runner_on_ok", "project_update_id": 7, "stdout": stdout} | {
        "event_data": data
    }


@pytest.mark.lengthy
def test_an_event_beyond_the_bounds_keeps_what_decides_about_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(frames, "log", logged.append)
    spool = Spool(tmp_path / "spool")
    result = {"changed": True, "terminal": True, "msg": "done", "resources": [{}] * 300_000}
    spool.add(json.dumps(_event(result)).encode() + b"\n" + json.dumps(_event({"changed": False})).encode() + b"\n")
    first, second = (b"".join(spool.pieces(number))[HEADER.size :] for number in (1, 2))
    assert json.loads(first) == _event({"changed": True, "terminal": True, "msg": "done"})
    assert json.loads(second) == _event({"changed": False})
    assert len(logged) == 1


@pytest.mark.lengthy
def test_a_long_output_is_cut() -> None:
    event = json.loads(shortened(json.dumps(_event({"msg": "x" * 5000}, "y" * LONGEST_EVENT)).encode()))
    assert event["stdout"] == "y" * (1 << 20)
    assert event["event_data"]["res"] == {}


def test_a_long_line_without_an_event_is_an_error_of_the_run() -> None:
    for line in (b"[]", b"x", b'{"event_data": {"res": [1]}}', b"[" * 5000):
        with pytest.raises(AgentError, match="contains no event"):
            shortened(line)


_JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab,[{"\\', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a,[{"\\', max_size=4), inner),
    max_leaves=12,
)


def _count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, inner))


@given(_JSON)
def test_json_exceeds_a_bound_only_by_its_values_and_not_by_its_texts(value: Any) -> None:
    text = json.dumps(value).encode()
    assert exceeds(text, _count(value) // 2)  # each value but the first follows a comma or begins a map or list
    assert not exceeds(text, 2 * _count(value) + 1)


@pytest.mark.parametrize("text", [b"[[],[],[],[]", b'",,,,,"' + b'""' * 40, b"{" * 9])
def test_invalid_json_exceeds_a_bound_too(text: bytes) -> None:
    assert exceeds(text, 4)


def test_a_long_text_does_not_exceed_a_bound() -> None:
    assert not exceeds(json.dumps({"stdout": json.dumps([[]] * 10_000)}).encode(), 10)


async def test_a_cancellation_at_the_moment_of_the_result_is_not_ignored() -> None:
    for steps in range(4):  # of the event loop, between the result and the cancellation
        result = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_wait_twice(result))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        result.set_result(1)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, patience())


async def _wait_twice(result: asyncio.Future[int]) -> None:
    await frames.within(10, result)
    await asyncio.Event().wait()


async def test_a_time_limit_ends_what_it_limits() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(asyncio.TimeoutError):
        await frames.within(0.01, work())
    assert ended.is_set()
