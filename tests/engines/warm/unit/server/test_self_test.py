"""Processes that a trial of the self-test leaves behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from runner.agent import process_tree
from runner.core.engine import processes
from runner.engines.warm.server import self_test
from tests.kit.forks import in_a_fork

pytestmark = pytest.mark.lengthy


def left_behind(seconds: float) -> None:
    """Leave an orphan that ignores SIGTERM and ends after some seconds."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(seconds)
        os._exit(0)


def reported() -> list[object]:
    """Return the report about the processes below this one, and whether some are left."""
    return [self_test._end_orphans(), process_tree.has_children()]


def test_processes_that_end_soon_are_reaped_without_a_report() -> None:
    def act() -> object:
        process_tree.adopt_orphans()
        processes.result_of_fork(lambda: left_behind(0.2), 60)
        return reported()

    assert in_a_fork(act) == repr(["", False])


def test_processes_that_do_not_end_are_killed_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "_REAP_WITHIN", 0.2)

    def act() -> object:
        process_tree.adopt_orphans()
        processes.result_of_fork(lambda: left_behind(3600), 60)
        return reported()

    found = in_a_fork(act)
    assert "processes of the self-test did not end with it and were killed: " in found
    assert Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode() in found
    assert found.endswith(", False]")
