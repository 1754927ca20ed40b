from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from runner.agent import process_tree
from runner.core.engine import processes
from runner.core.engine.processes import MARKER
from tests.kit.shortage import no_descriptor_left
from tests.kit.wait import patience, wait_until

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[bytes]] = []

    def run(command: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"echo up; {command}"],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield run
    for process in begun:
        for pid in process_tree.descendants(process_tree.table(), [process.pid]):
            with suppress(ProcessLookupError):  # ended meanwhile
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_a_process_is_read_with_its_parent_until_it_has_ended_whatever_its_name_is(
    start: Start, tmp_path: Path
) -> None:
    odd = tmp_path / "a ) (b c"
    odd.symlink_to("/bin/sleep")
    process = start(f"exec '{odd}' 60")
    wait_until(lambda: b"a ) (b" in Path(f"/proc/{process.pid}/stat").read_bytes(), "the name of the process")
    found = process_tree.read(process.pid)
    assert found is not None
    assert (found.parent, found.session, found.zombie) == (os.getpid(), os.getsid(0), False)
    process.kill()
    process.wait()
    assert process_tree.read(process.pid) is None


@pytest.fixture
def identity() -> str:
    """A run's, which no test at the same time has: all processes of the machine are looked at."""
    return f"{uuid.uuid4().hex}:1:2:run"


def test_a_run_is_its_supervisor_its_descendants_and_all_that_is_marked(start: Start, identity: str) -> None:
    supervisor = start("env -i sleep 60 & wait", **{MARKER: identity})
    marked = start("exec sleep 60", **{MARKER: identity})
    other = start("exec sleep 60", **{MARKER: f"{identity}-other"})
    wait_until(lambda: process_tree.descendants(process_tree.table(), [supervisor.pid]), "the child of the supervisor")

    found = {process.pid for process in processes.of_run(identity, process_tree.read(supervisor.pid))}

    assert {supervisor.pid, marked.pid} < found
    assert len(found) == 3
    assert other.pid not in found


def test_killing_a_run_leaves_none_of_it_alive(start: Start, identity: str) -> None:
    supervisor = start("trap '' TERM INT; sleep 60 & wait", **{MARKER: identity})

    assert processes.kill(identity, process_tree.read(supervisor.pid), within=5)

    assert process_tree.living(processes.of_run(identity, process_tree.read(supervisor.pid))) == []


@pytest.mark.lengthy
def test_a_process_that_got_the_pid_of_an_ended_supervisor_is_not_killed(start: Start, identity: str) -> None:
    stranger = start("sleep 60 & wait")
    marked = start("exec sleep 60", **{MARKER: identity})
    found = process_tree.read(stranger.pid)
    assert found is not None
    supervisor = found._replace(start=found.start - 1)

    assert processes.kill(identity, supervisor, within=5)
    assert processes.kill(identity, None, within=5)

    assert marked.wait(patience()) == -signal.SIGKILL
    assert stranger.poll() is None
    assert len(process_tree.descendants(process_tree.table(), [stranger.pid])) == 1


def test_the_value_of_a_fork_is_returned_while_its_child_holds_the_pipe() -> None:
    def act() -> list[object]:
        left = os.fork()
        if left == 0:
            time.sleep(3600)
        return [left, os.getsid(0) == os.getpid(), "x" * 500_000]

    left, leads_session, text = processes.result_of_fork(act, within=60)

    os.kill(left, signal.SIGKILL)
    assert leads_session
    assert len(text) == 500_000


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "act", [lambda: os._exit(0), lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: time.sleep(3600)]
)
def test_a_fork_that_returns_no_value_has_none(act: Callable[[], object]) -> None:
    assert processes.result_of_fork(act, within=2) is None


def test_leftovers_are_those_of_this_root_whose_operator_is_dead(start: Start, tmp_path: Path) -> None:
    mine = processes.run_id(tmp_path, "run")
    digest = mine.partition(":")[0]
    namesake = f"{digest}:{os.getpid()}:1:run"  # our pid, but started at another time
    start("exec sleep 60", **{MARKER: mine})
    dead = start("exec sleep 60", **{MARKER: namesake})
    start("exec sleep 60", **{MARKER: processes.run_id(tmp_path / "other", "run").replace(f":{os.getpid()}:", ":1:")})
    start("exec sleep 60", **{MARKER: f"{digest}:odd"})

    found = {process.pid for process in processes.leftovers(tmp_path)}

    assert dead.pid in found
    assert len(found) == 2  # an invalid marker belongs to no living operator either


def test_a_zombie_of_the_own_session_is_not_a_stray(start: Start) -> None:
    ordinary = start("exit 0")
    wait_until(lambda: (found := process_tree.read(ordinary.pid)) and found.zombie, "the process to end")
    assert ordinary.pid not in processes.orphaned_zombies(set())


REAPING = {
    "children of a killed fork server": """
        server = os.fork()
        if not server:
            if not os.fork():
                os.setsid(); os.fork(); signal.pause()
            signal.pause()
        own = os.getpid()
        while len(left := process_tree.descendants(process_tree.table(), [own])) < 3:
            pass
        run_root._REAP_EVERY = 0.01
        async def main():
            reaping = asyncio.create_task(run_root.reap_orphans(set()))
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            for pid in left - {server}:
                os.kill(pid, signal.SIGKILL)
            while process_tree.has_children():
                await asyncio.sleep(0.01)
            reaping.cancel()
        asyncio.run(main())
    """,
    "an adopted zombie of another session": """
        if not os.fork():
            if not os.fork():
                os.setsid(); time.sleep(0.2)
            os._exit(0)
        os.wait()
        while not (strays := processes.orphaned_zombies(set())):
            time.sleep(0.01)
        assert processes.orphaned_zombies(strays) == set()
        processes.reap_orphans(set())
        assert processes.orphaned_zombies(set()) == set()
    """,
    "a process that is killed although the time for that is over at the first look": """
        below = subprocess.Popen(["sleep", "60"])
        list(process_tree.ending(0.0, kill_within=0.0))
        assert below.wait(30) == -9
    """,
}


@pytest.mark.lengthy
@pytest.mark.parametrize("case", REAPING)
def test_processes_are_reaped(case: str) -> None:
    imports = "import asyncio, os, signal, subprocess, time\nfrom runner.agent import process_tree\n"
    imports += "from runner.core.engine import processes, run_root\nprocess_tree.adopt_orphans()\n"
    code = imports + textwrap.dedent(REAPING[case])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patience())


def test_without_descriptors_reading_a_process_is_an_error_and_kills_nothing(start: Start) -> None:
    sleeper = start("exec sleep 60", **{MARKER: "id"})
    supervisor = process_tree.read(sleeper.pid)
    for look in (process_tree.table, partial(process_tree.read, sleeper.pid), partial(processes.marker, sleeper.pid)):
        with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
            look()
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        processes.kill("id", supervisor, within=0)
    assert sleeper.poll() is None
