"""However a run is ended from outside, and whatever else runs, both engines show the same, and nothing stays.

Most tests are nightly: in CI, `engine/test_processes.py` checks each outcome with each engine, without a comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from runner.agent import process_tree
from runner.core.engine.job import Outcome

if TYPE_CHECKING:
    from tests.integration.engine.parity.comparison import Hanging, Parity

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


def kill(number: signal.Signals, find: Callable[[Hanging], int]) -> Callable[[Hanging], None]:
    def act(hanging: Hanging) -> None:
        os.kill(find(hanging), number)

    return act


def itself(hanging: Hanging) -> int:
    """The module, or the worker that an action hangs in."""
    return hanging.pid


def playbook(hanging: Hanging) -> int:
    pid: int = hanging.events[0]["pid"]
    return pid


def supervisor(hanging: Hanging) -> int:
    pid = playbook(hanging)
    while (found := process_tree.read(pid)) and found.parent != os.getpid():
        pid = found.parent
    return pid


@pytest.mark.nightly
async def test_a_hung_module_is_ended_by_canceling_the_run(parity: Parity) -> None:
    await parity.interrupted(
        "module", Outcome.CANCELED, lambda hanging: hanging.cancel(), how="stubborn", broken_off=True
    )


@pytest.mark.nightly  # waits for the deadline
async def test_a_hung_module_is_ended_by_the_deadline(parity: Parity) -> None:
    cold = await parity.interrupted(
        "module", Outcome.TIMED_OUT, lambda _: None, how="stubborn", deadline=25.0, broken_off=True
    )

    assert "during task 'hanging in a module'" in cold.result.message


@pytest.mark.nightly
async def test_a_module_that_is_killed_fails_its_task(parity: Parity) -> None:
    cold = await parity.interrupted("module", Outcome.FAILED, kill(signal.SIGKILL, itself))

    assert cold.task("hanging in a module")["rc"] == 137


@pytest.mark.nightly
async def test_a_worker_that_is_killed_ends_the_run(parity: Parity) -> None:
    cold = await parity.interrupted("worker", Outcome.FAILED, kill(signal.SIGKILL, itself))

    assert "dead state" in cold.result.message


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["module", "worker"])
async def test_a_playbook_that_is_killed_ends_the_run(parity: Parity, where: str) -> None:
    cold = await parity.interrupted(where, Outcome.DIED, kill(signal.SIGKILL, playbook))

    assert cold.result.message.startswith("ansible-playbook was killed by SIGKILL during task 'hanging")


@pytest.mark.nightly
async def test_a_playbook_that_is_terminated_ends_the_run(parity: Parity) -> None:
    await parity.interrupted("module", Outcome.DIED, kill(signal.SIGTERM, playbook))


async def test_a_run_continues_without_its_fork_server_and_the_next_one_gets_another(parity: Parity) -> None:
    await parity.engine.settle()  # whatever servers there are stay, unless they are killed here
    engines = ["exec", parity.name]
    killed: list[int] = []

    def act(hanging: Hanging) -> None:
        # Not while the cold run hangs too: of servers that die young one after another the next run gets none.
        if engines.pop(0) == "warm":
            killed.extend(parity.engine.pool.servers())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        (hanging.work / "go").touch()

    cold = await parity.interrupted("module", Outcome.SUCCEEDED, act, how="patient")
    following = await parity.under_test("hanging.yml", extra_vars={"where": "nowhere", "how": ""})

    assert cold.task("another module")["stdout"] == "after"
    assert following.result.outcome is Outcome.SUCCEEDED
    assert parity.engine.pool.problem is None
    assert killed or parity.name == "exec"
    assert not set(killed) & set(parity.engine.pool.servers())


async def test_runs_at_once_see_nothing_of_each_other(parity: Parity) -> None:
    await parity.together("together.yml", Outcome.FAILED, 2)


@pytest.mark.nightly
async def test_a_supervisor_that_is_killed_ends_the_run(parity: Parity) -> None:
    cold = await parity.interrupted("module", Outcome.DIED, kill(signal.SIGKILL, supervisor), broken_off=True)

    assert cold.result.message.startswith("the run's supervisor was killed by SIGKILL")
