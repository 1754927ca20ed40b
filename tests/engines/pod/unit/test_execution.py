"""The log of the pod of a run."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from runner.engines.pod.execution import PodExecution


def test_control_characters_are_visible_in_the_log_of_a_pod() -> None:
    acknowledged: list[tuple[int, str]] = []
    link = SimpleNamespace(acknowledge=lambda number, text: acknowledged.append((number, text)))
    execution: Any = SimpleNamespace(link=link, _pending=deque([7, 8]))
    PodExecution.shown(execution, {"stdout": "\x1b[31mchanged\x1b[0m \x1b[2J\x1b]0;title\x07 \u202e\r\nnext"})
    PodExecution.shown(execution, {"stdout": ""})
    assert acknowledged == [(7, "changed \\x1b[2J\\x1b]0;title\\x07 \\u202e\nnext\n"), (8, "")]
