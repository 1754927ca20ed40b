from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.sdk.devcluster.processes import Component, Guard, end, environment
from runner.sdk.devcluster.supervisor import RestartBackoff
from tests.kit.wait import wait_until

_SLEEP = ("/bin/sleep", "1000")
# A parent that starts a component and then waits to be killed.
_PARENT = """
import sys, time
from pathlib import Path
from runner.sdk.devcluster.processes import Component
folder = Path(sys.argv[1])
component = Component("sleeper", ("/bin/sleep", "1000"), folder, folder / "log")
component.start()
print(component.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Component:
    return Component("sleeper", _SLEEP, tmp_path, tmp_path / "log")


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_component_is_reaped(sleeper: Component) -> None:
    sleeper.start()
    pid = sleeper.pid
    assert pid is not None
    sleeper.kill()
    assert sleeper.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_killing_what_never_started_does_nothing(sleeper: Component) -> None:
    sleeper.kill()
    assert sleeper.pid is None


def test_output_goes_to_the_log_and_its_end_into_messages(tmp_path: Path) -> None:
    component = Component("talker", ("/bin/sh", "-c", "seq 100; echo failed >&2; exit 3"), tmp_path, tmp_path / "log")
    component.start()
    assert component.process is not None
    assert component.process.wait() == 3
    assert component.last_lines(2) == "  100\n  failed"


@pytest.mark.lengthy
def test_a_component_dies_with_its_parent_even_by_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _runs(pid)
        parent.kill()
        parent.wait()
    wait_until(lambda: not _runs(pid))


def test_the_guard_ends_running_components_and_removes_their_folders(tmp_path: Path) -> None:
    deleted, kept = tmp_path / "deleted folder", tmp_path / "kept"
    for folder in (deleted, kept):
        folder.mkdir()
    # A grandchild: the guard must end process groups, not processes.
    component = Component("shell", ("/bin/sh", "-c", "sleep 1000 & echo $!; wait"), kept, kept / "log")
    guard = Guard.start([deleted])
    component.start()
    guard.send_groups([component.pid])
    wait_until(lambda: (kept / "log").read_text().strip().isdigit())
    grandchild = int((kept / "log").read_text())
    guard.finish()
    wait_until(lambda: not _runs(grandchild))
    wait_until(lambda: not component.alive)
    wait_until(lambda: not deleted.exists())
    assert kept.exists()


def test_the_guard_spares_what_has_ended_before(tmp_path: Path, sleeper: Component) -> None:
    guard = Guard.start([])
    sleeper.start()
    guard.send_groups([sleeper.pid])
    sleeper.kill()
    guard.send_groups([sleeper.pid])
    sleeper.start()
    guard.finish()
    assert sleeper.alive
    sleeper.kill()


def test_components_get_no_secrets_of_the_environment() -> None:
    ours = {"PATH": "/bin", "HOME": "/home/me", "API_TOKEN": "secret", "HTTPS_PROXY": "http://proxy"}
    assert environment(ours) == {"PATH": "/bin", "HOME": "/home/me"}


def test_a_component_that_ends_again_and_again_is_started_later_each_time() -> None:
    revival = RestartBackoff()
    assert not revival.is_due(100.0)
    assert not revival.is_due(100.4)
    assert revival.is_due(100.5)
    assert not revival.is_due(101.0)
    assert not revival.is_due(101.9)
    assert revival.is_due(102.0)


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", 7),
        ("trap '' TERM; echo ready; while :; do sleep 0.05; done", -signal.SIGKILL),
        ("echo ready; exit 3", 3),
    ],
)
def test_a_process_is_killed_if_it_ignores_its_end(script: str, code: int) -> None:
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if code == 3:
            process.wait()
        end(process, 1.0)
        assert process.returncode == code
