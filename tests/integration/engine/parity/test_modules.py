"""Modules that misbehave have the same effects with both engines, and none on other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.engine.runs import ANSIBLE_MASK

if TYPE_CHECKING:
    from tests.integration.engine.parity.comparison import Parity
    from tests.integration.engine.parity.observe import Observation

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.full
async def test_modules_that_misbehave(parity: Parity) -> None:
    cold = await parity("misbehaving.yml")

    before, after = cold.task("before"), cold.task("after all")
    assert before == after
    assert {"work/thread", "work/background", "work/forked"} <= cold.files.keys()


def _of_module(result: dict[str, Any]) -> list[object]:
    """What the module drew; its result holds its arguments too, with some versions of ansible-core."""
    return [value for name, value in result.items() if name.startswith("of_")]


async def test_chance_differs_between_runs_and_tasks(parity: Parity) -> None:
    first = await parity.under_test("random.yml")
    second = await parity.under_test("random.yml")

    def drawn(observation: Observation) -> list[str]:
        said = [observation.task(name) for name in ("in a worker", "shown", "in a module", "in another module")]
        values = [said[0]["msg"], said[1]["chance"].split(" "), *map(_of_module, said[2:])]
        return [str(value) for group in values for value in group if len(str(value)) > 5 and value != ANSIBLE_MASK]

    both = drawn(first) + drawn(second)
    assert len(both) >= 30
    assert len(set(both)) == len(both)
    names = [{event["uuid"] for event in each.events} for each in (first, second)]
    tasks = [{event["event_data"].get("task_uuid") for event in each.events} - {None} for each in (first, second)]
    assert not names[0] & names[1]
    assert tasks[0]
    assert not tasks[0] & tasks[1]
