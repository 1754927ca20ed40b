"""The process of the operator that `ansible-operator dev` runs."""

from __future__ import annotations

import io
import os
from queue import SimpleQueue

import pytest

from runner.sdk.dev import operator as operators
from runner.sdk.dev.board import LiveView
from runner.sdk.dev.operator import OperatorProcess
from runner.sdk.dev.screen import Screen
from tests.kit.wait import patience, wait_until

FAIL = "import sys; sys.stdin.readline(); print('error: no'); sys.exit(2)"
WAIT = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def test_the_reason_of_an_end_is_there_with_the_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_PROGRAM", FAIL)
    failures: SimpleQueue[str] = SimpleQueue()

    def notify() -> None:
        failures.put(operator.failure())

    operator = OperatorProcess((), os.environ, io.StringIO(), Screen(LiveView(), io.StringIO()), notify)
    operator.start()
    assert failures.get(timeout=patience()) == "the operator exited with code 2: error: no"
    operator.close(patience())


@pytest.mark.parametrize("hurries", [True, False])
def test_a_process_that_does_not_end_in_time_is_killed(monkeypatch: pytest.MonkeyPatch, *, hurries: bool) -> None:
    monkeypatch.setattr(operators, "_PROGRAM", WAIT)
    log = io.StringIO()
    operator = OperatorProcess((), os.environ, log, Screen(LiveView(), io.StringIO()), lambda: None)
    operator.start()
    wait_until(lambda: "ready" in log.getvalue(), "the process")
    operator.hurry()  # before it is ending
    operator.terminate()
    if hurries:
        operator.hurry()
    operator.close(patience() if hurries else 0.1)
    assert operator.failure() == ""
