"""Ends of runs for lack of memory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runner.agent import process_tree
from runner.agent.process_tree import StuckWatch
from tests.kit.wait import patience

SCRIPT = """
    import multiprocessing, os, queue, sys, time
    from runner.agent import process_tree
    from runner.core.engine import memory_watch
    lock, kills = multiprocessing.Lock(), [0]
    lock.acquire()
    child = os.fork()
    if not child:
        {action}
        os._exit(0)
    process_tree._STUCK, memory_watch._EVERY = 0.5, 0.05
    ended = queue.SimpleQueue()
    memory_watch.MemoryWatch({limit}, ended.put, lambda: kills[0]).start()
    time.sleep(0.3)
    kills[0] = {kills}
    try:
        print(ended.get(timeout=2.0))
    except queue.Empty:
        print("continues")
    os.kill(child, 9)
"""


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("action", "kills", "limit", "expected"),
    [
        pytest.param("lock.acquire()", 1, 0, "0", id="stuck"),
        pytest.param("lock.acquire()", 0, 0, "continues", id="nothing-was-killed"),
        pytest.param("time.sleep(9)", 1, 0, "continues", id="waits-for-a-time"),
        pytest.param("lock.acquire(timeout=9) if os.fork() else time.sleep(9)", 1, 0, "continues", id="has-a-worker"),
    ],
)
def test_a_run_ends_if_it_is_stuck_after_the_kernel_killed_a_process(
    action: str, kills: int, limit: int, expected: str
) -> None:
    script = textwrap.dedent(SCRIPT).format(action=action, kills=kills, limit=limit)
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=patience(), check=False
    )
    assert shown.stdout.strip() == expected, shown.stderr


def test_a_process_is_not_stuck_while_the_others_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: int) -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    kills = iter([0, 1])
    watch = StuckWatch(lambda: next(kills))
    monkeypatch.setattr(process_tree, "below", lambda _: {os.getpid()})
    monkeypatch.setattr(process_tree, "read", read)
    assert not watch.is_stuck(os.getpid())


def test_processes_that_end_while_they_are_listed_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, children in ((1, "2 3"), (2, "4"), (3, "5"), (4, "6")):
        (tmp_path / f"{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"{pid}/task/{pid}/children").write_text(children)
    scandir, listdir = os.scandir, os.listdir

    def checked(path: Path) -> Path:
        if Path(path).parts[-2:] == ("2", "task"):
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return path

    monkeypatch.setattr(process_tree, "PROC", tmp_path)
    monkeypatch.setattr(os, "scandir", lambda path: scandir(checked(path)))
    monkeypatch.setattr(os, "listdir", lambda path: listdir(checked(path)))
    assert process_tree.below(1) == {2, 3, 5}
