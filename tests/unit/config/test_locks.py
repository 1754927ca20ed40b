from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.base.config.locks import FileLock, locked

_HOLD = """
import sys
from pathlib import Path
from runner.base.config.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "lock"


def _other_holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_by_one_at_a_time(path: Path) -> None:
    first, second = FileLock(path), FileLock(path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_that_was_never_taken_has_no_holder(path: Path) -> None:
    assert FileLock(path).holder() is None


def test_looking_for_the_holder_takes_nothing(path: Path) -> None:
    lock = FileLock(path)
    assert lock.acquire()
    lock.release()
    assert FileLock(path).holder() is None
    assert lock.acquire()
    lock.release()


def test_two_that_look_for_the_holder_at_once_find_none(path: Path) -> None:
    """The file can still contain the process id of a killed holder."""
    path.parent.mkdir()
    path.write_text("1\n")
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # as in `holder`
        assert FileLock(path).holder() is None


def test_a_killed_holder_holds_nothing_any_more(path: Path) -> None:
    with _other_holder(path) as process:
        assert FileLock(path).holder() == process.pid
        process.kill()
        process.wait()
        assert FileLock(path).holder() is None


def test_patience_waits_for_a_lock_that_is_about_to_be_free(path: Path) -> None:
    with _other_holder(path) as process:
        assert process.stdin is not None
        process.stdin.close()
        lock = FileLock(path)
        assert lock.acquire(patience=10)
        lock.release()


@pytest.mark.parametrize("times", [1, 3])
def test_a_callback_is_called_before_waiting_for_a_lock_and_repeatedly_meanwhile(path: Path, times: int) -> None:
    first = FileLock(path)
    assert first.acquire()
    said = []

    def waiting() -> None:
        said.append("waiting")
        if len(said) == times:
            first.release()

    with locked(path, waiting, remind=0.01):
        assert FileLock(path).holder() == os.getpid()
    assert said == ["waiting"] * times
    assert FileLock(path).holder() is None
