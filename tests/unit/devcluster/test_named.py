"""`cluster down` signals the supervisor, and no other process."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from runner.base.config.locks import FileLock
from runner.sdk.devcluster import folders
from runner.sdk.devcluster.layout import Layout
from tests.kit.wait import patience

_DOWN = """
import sys
from runner.sdk.devcluster import named
named._ENDS_WITHIN = 0.2
named.down({"XDG_STATE_HOME": sys.argv[1]}, "dev")
"""
_HOLD = """
import sys
from pathlib import Path
from runner.base.config.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
assert lock.acquire()
print(flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.lengthy


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[IO[str]]:
    """Hold the lock of a cluster, as a supervisor does before it writes its process id."""
    path = Layout(folders.cluster({"XDG_STATE_HOME": str(tmp_path)}, "dev")).lock
    path.parent.mkdir(parents=True)
    with path.open("w+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def down(state: Path) -> subprocess.CompletedProcess[str]:
    """Run `down` in a process group of its own."""
    command = [sys.executable, "-P", "-c", _DOWN, str(state)]
    return subprocess.run(
        command, start_new_session=True, capture_output=True, text=True, check=False, timeout=patience()
    )


def test_down_does_not_end_its_own_process_group_if_the_supervisor_has_not_written_its_id(
    lock: IO[str], tmp_path: Path
) -> None:
    done = down(tmp_path)
    assert done.returncode == 1
    assert f"cluster 'dev' does not stop: the process that holds {lock.name} does not exit" in done.stderr


def test_down_ends_no_process_whose_id_remained_in_the_lock_file(lock: IO[str], tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lock.write(f"{other.pid}\n")
        lock.flush()
        assert "is not its supervisor" in down(tmp_path).stderr
        assert other.poll() is None
        other.kill()


def test_down_ends_the_process_that_holds_the_lock(lock: IO[str], tmp_path: Path) -> None:
    lock.close()
    command = [sys.executable, "-P", "-c", _HOLD, lock.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert down(tmp_path).returncode == 0
        assert holder.wait(patience()) == -15
    assert FileLock(Path(lock.name)).holder() is None
