"""Output of the worker as frames of limited size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.agent import frames
from runner.agent.bounds import LONGEST_EVENT
from runner.agent.frames import HEADER, AgentError
from runner.agent.spool import Spool, shortened


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
