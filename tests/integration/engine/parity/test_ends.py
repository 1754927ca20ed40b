"""However a run is ended from outside, both engines show the same, and nothing of it stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from runner.engine import processes
from runner.engine.job import Outcome

if TYPE_CHECKING:
    from tests.integration.engine.parity.conftest import Hanging, Parity

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
    while (found := processes.read(pid)) and found.parent != os.getpid():
        pid = found.parent
    return pid


async def test_a_hung_module_is_ended_by_canceling_the_run(parity: Parity) -> None:
    await parity.interrupted("module", Outcome.CANCELED, lambda hanging: hanging.cancel(), how="stubborn")


@pytest.mark.full  # waits for the deadline
async def test_a_hung_module_is_ended_by_the_deadline(parity: Parity) -> None:
    cold = await parity.interrupted("module", Outcome.TIMED_OUT, lambda _: None, how="stubborn", deadline=15.0)

    assert "during task 'hanging in a module'" in cold.result.message


async def test_a_module_that_is_killed_fails_its_task(parity: Parity) -> None:
    cold = await parity.interrupted("module", Outcome.FAILED, kill(signal.SIGKILL, itself))

    assert cold.task("hanging in a module")["rc"] == 137


async def test_a_worker_that_is_killed_ends_the_run(parity: Parity) -> None:
    cold = await parity.interrupted("worker", Outcome.FAILED, kill(signal.SIGKILL, itself))

    assert "dead state" in cold.result.message


@pytest.mark.parametrize("where", ["module", "worker"])
async def test_a_playbook_that_is_killed_ends_the_run(parity: Parity, where: str) -> None:
    cold = await parity.interrupted(where, Outcome.DIED, kill(signal.SIGKILL, playbook))

    assert cold.result.message.startswith("ansible-playbook was killed by SIGKILL during task 'hanging")


async def test_a_playbook_that_is_terminated_ends_the_run(parity: Parity) -> None:
    await parity.interrupted("module", Outcome.DIED, kill(signal.SIGTERM, playbook))


async def test_a_supervisor_that_is_killed_ends_the_run(parity: Parity) -> None:
    cold = await parity.interrupted("module", Outcome.DIED, kill(signal.SIGKILL, supervisor), broken_off=True)

    assert cold.result.message.startswith("the run's supervisor was killed by SIGKILL")
