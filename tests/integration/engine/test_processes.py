"""Whatever ends a run, nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.agent import process_tree
from runner.core.engine import processes
from runner.core.engine.job import Event, Outcome
from tests.integration.engine.runs import ENGINE
from tests.kit.engines import ProcessEngines
from tests.kit.wait import patience, until, wait_until

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

ProcessesOf = Callable[[Path], list[int]]

LINGERING = """
- name: daemon
  shell: |
    setsid sh -c 'trap "" TERM; echo $$ > {marks}/daemon; while :; do sleep 60; done' >/dev/null 2>&1 </dev/null &
    env -i setsid sh -c 'echo $$ > {marks}/nameless; exec sleep 600' >/dev/null 2>&1 </dev/null &
- name: detached
  command: sleep 600
  async: 600
  poll: 0
- name: hanging
  shell: "trap '' TERM; touch {marks}/hanging; while :; do sleep 60; done"
"""


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    path = tmp_path / "marks"
    path.mkdir()
    return path


def lingering(runs: Runs, marks: Path) -> Any:
    return runs.tasks(LINGERING.format(marks=marks))


def started(marks: Path) -> bool:
    written = {path.name for path in marks.iterdir() if path.name == "hanging" or path.read_text().endswith("\n")}
    return {"daemon", "nameless", "hanging"} <= written


def alive(marks: Path) -> list[int]:
    pids = [int((marks / name).read_text()) for name in ("daemon", "nameless")]
    return [pid for pid in pids if (found := process_tree.read(pid)) and not found.zombie]


async def test_a_run_that_takes_too_long_is_ended_with_everything_it_started(
    runs: Runs,
    marks: Path,
    processes_of: ProcessesOf,
    own_zombies: Callable[[], list[int]],
) -> None:
    playbook = lingering(runs, marks)
    deadline = round(patience(10.5), 1)  # the task must be running before
    run = asyncio.create_task(runs.run(playbook, deadline=deadline))
    await until(lambda: started(marks))
    daemons = alive(marks)

    ran = await run

    assert len(daemons) == 2
    assert ran.result.outcome is Outcome.TIMED_OUT
    assert ran.result.message == (
        f"the run took longer than {deadline:g}s and was ended during task 'hanging' ({playbook.path}:12)"
    )
    assert alive(marks) == []
    assert processes_of(runs.root) == []
    assert own_zombies() == []
    assert not (runs.run_dir / "env" / "kubeconfig").exists()


async def test_canceling_ends_the_run_before_the_canceled_task_ends(
    runs: Runs,
    marks: Path,
    processes_of: ProcessesOf,
) -> None:
    run = asyncio.create_task(runs.run(lingering(runs, marks)))
    await until(lambda: started(marks))

    run.cancel()
    await asyncio.sleep(0.2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert alive(marks) == []
    assert processes_of(runs.root) == []
    assert not (runs.run_dir / "env" / "kubeconfig").exists()


async def test_a_killed_supervisor_leaves_no_process_and_is_named_in_the_result(
    runs: Runs,
    marks: Path,
    processes_of: ProcessesOf,
    own_zombies: Callable[[], list[int]],
) -> None:
    playbook = lingering(runs, marks)
    run = asyncio.create_task(runs.run(playbook))
    await until(lambda: started(marks))
    found = [process_tree.read(pid) for pid in processes_of(runs.root)]
    (supervisor,) = [each.pid for each in found if each and each.parent == os.getpid()]
    os.kill(int((marks / "nameless").read_text()), signal.SIGTERM)  # unmarked: beyond reach once it is orphaned

    os.kill(supervisor, signal.SIGKILL)
    ran = await run

    assert ran.result.outcome is Outcome.DIED
    assert ran.result.message == (
        f"the run's supervisor was killed by SIGKILL during task 'hanging' ({playbook.path}:12)"
    )
    assert alive(marks) == []
    assert processes_of(runs.root) == []
    assert own_zombies() == []
    assert not (runs.run_dir / "env" / "kubeconfig").exists()


async def test_a_run_whose_artifacts_cannot_be_written_continues(runs: Runs, processes_of: ProcessesOf) -> None:
    playbook = runs.tasks("- {name: first, debug: {msg: 1}}\n- {name: last, debug: {msg: 2}}")

    def spoil(event: Event) -> None:
        folder = runs.run_dir / "artifacts" / "latest" / "job_events"
        if event["event"] == "playbook_on_start":
            folder.rmdir()
            folder.write_text("a file")

    ran = await runs.run(playbook, spoil)

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.said("last") == 2
    assert processes_of(runs.root) == []


async def test_a_killed_ansible_process_has_another_outcome_than_a_failed_one(
    runs: Runs, processes_of: ProcessesOf
) -> None:
    playbook = runs.tasks("- {name: before, debug: {msg: 1}}\n- {name: killing, command: sleep 600}")

    def kill_ansible(event: Event) -> None:
        if event["event"] == "runner_on_start" and event["event_data"]["task"] == "killing":
            os.kill(event["pid"], signal.SIGKILL)

    ran = await runs.run(playbook, kill_ansible)

    assert ran.result.outcome is Outcome.DIED
    assert ran.result.message == (
        f"ansible-playbook was killed by SIGKILL during task 'killing' ({playbook.path}:5); "
        "the kernel does so when memory runs out"
    )
    assert ran.result.recap is None
    assert processes_of(runs.root) == []


async def test_background_processes_of_a_successful_run_end_with_it(
    runs: Runs,
    processes_of: ProcessesOf,
) -> None:
    playbook = runs.tasks("- {name: detached, command: sleep 600, async: 600, poll: 0}")

    ran = await runs.run(playbook)

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert processes_of(runs.root) == []


async def test_closing_waits_for_runs_then_ends_them_and_starts_no_more(
    runs_of: Callable[[ProcessEngines, Path, Path], Runs],
    tmp_path: Path,
    marks: Path,
    processes_of: ProcessesOf,
) -> None:
    root = tmp_path / "runner"
    runs = runs_of(ProcessEngines(root, ENGINE), root, tmp_path)
    hanging = asyncio.create_task(runs.run(lingering(runs, marks)))
    short = asyncio.create_task(
        runs.run(
            runs.playbook(
                f"- {{hosts: localhost, tasks: [{{command: touch {tmp_path}/short}}, {{pause: {{seconds: 2}}}}],"
                " gather_facts: false}",
                "short.yml",
            ),
            run_dir=runs.run_dir.with_name("other"),
        ),
    )
    await until(lambda: started(marks) and (tmp_path / "short").exists())

    await runs.engine.close(8)

    assert (await short).result.outcome is Outcome.SUCCEEDED
    assert (await hanging).result.outcome is Outcome.CANCELED
    assert "'hanging'" in (await hanging).result.message
    late = await runs.run(lingering(runs, marks))
    assert late.result.outcome is Outcome.CANCELED
    assert processes_of(runs.root) == []


async def test_a_sink_that_fails_ends_the_run(runs: Runs, marks: Path, processes_of: ProcessesOf) -> None:
    def fail(event: Event) -> None:
        if event.get("event_data", {}).get("task") == "hanging":
            wait_until(lambda: started(marks))  # the processes in the background may be late
            raise ValueError("the log is full")

    with pytest.raises(ValueError, match="the log is full"):
        await runs.run(lingering(runs, marks), fail)

    assert alive(marks) == []
    assert processes_of(runs.root) == []


OPERATOR = textwrap.dedent("""
    import asyncio, json, os, sys
    from pathlib import Path
    from tests.kit.engines import ProcessEngines
    from tests.kit.jobs import job_value
    from runner.core.watches.watch import Playbook

    async def main():
        root, playbook, engine = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
        job = job_value(content=Playbook(playbook), run_dir=root / "g" / "v1" / "K" / "n" / "o")
        await ProcessEngines(root, engine).run(job, lambda event: None)

    asyncio.run(main())
""")


async def test_nothing_outlives_an_operator_that_is_killed(
    runs: Runs,
    marks: Path,
    tmp_path: Path,
    processes_of: ProcessesOf,
) -> None:
    root = tmp_path / "other-root"
    command = [sys.executable, "-c", OPERATOR, str(root), str(lingering(runs, marks).path), ENGINE]
    operator = subprocess.Popen(command)  # noqa: ASYNC220 - it starts at once
    await until(lambda: started(marks))
    daemons = alive(marks)

    operator.kill()
    operator.wait()

    def left() -> dict[int, bytes]:
        return {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids()}

    def pids() -> set[int]:
        return {*alive(marks), *processes_of(root)}

    await until(lambda: not pids(), lambda: f"the end of {left()}")
    assert len(daemons) == 2
    await until(lambda: not list(root.rglob("kubeconfig")))


async def test_leftovers_of_a_dead_operator_are_ended_and_those_of_a_live_one_are_not(
    runs: Runs,
) -> None:
    digest = processes.run_id(runs.root, "").partition(":")[0]
    live = processes.run_id(runs.root, "live")
    elsewhere = processes.run_id(runs.root / "x", "").partition(":")[0] + ":1:0:x"
    sleepers = {
        name: subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARKER: identity})  # noqa: ASYNC220 - as above
        for name, identity in {"dead": f"{digest}:1:0:old", "live": live, "elsewhere": elsewhere}.items()
    }
    kubeconfigs = {}
    for name, identity in {"dead": f"{digest}:1:0:old", "live": live}.items():
        env = runs.root / "g" / "v1" / "K" / "n" / name / "env"
        env.mkdir(parents=True)
        (env / "envvars").write_text(json.dumps({processes.MARKER: identity}))
        kubeconfigs[name] = env / "kubeconfig"
        kubeconfigs[name].write_text("secret")
    try:
        wait_until(lambda: all(processes.marker(sleeper.pid) for sleeper in sleepers.values()))

        ended = await runs.engine.root.reap_leftovers()

        assert ended == 1
        assert sleepers["dead"].wait(patience()) == -signal.SIGTERM
        assert sleepers["live"].poll() is None
        assert sleepers["elsewhere"].poll() is None
        assert not kubeconfigs["dead"].exists()
        assert kubeconfigs["live"].exists()
    finally:
        for sleeper in sleepers.values():
            sleeper.kill()
            sleeper.wait()
