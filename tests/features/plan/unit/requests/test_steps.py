"""How a write of a plan run is answered, by the state of its object."""

from __future__ import annotations

import pytest

from runner.features.plan.trial.overlay import PlannedState
from runner.features.plan.trial.steps import Action, Step, step

TABLE = """
state      create   change   delete   evict
unchanged  send     send     send     send
changed    exists   compute  send     send
created    exists   compute  local    refuse
replaced   exists   compute  local    send
deleted    replace  missing  missing  missing
withdrawn  send     missing  missing  missing
"""
IN_PLANNED_NAMESPACE = {
    ("create", "unchanged"): "local",
    ("create", "deleted"): "local",
    ("create", "withdrawn"): "local",
    ("change", "unchanged"): "missing",
}


def rows() -> list[tuple[str, str, str]]:
    (_, *actions), *lines = [line.split() for line in TABLE.strip().splitlines()]
    return [(action, state, found) for state, *steps in lines for action, found in zip(actions, steps, strict=True)]


@pytest.mark.parametrize(("action", "state", "expected"), rows())
def test_the_state_of_the_object_decides(action: str, state: str, expected: str) -> None:
    given = Action[action.upper()], PlannedState[state.upper()]
    assert step(*given, in_planned_namespace=False) is Step[expected.upper()]
    expected = IN_PLANNED_NAMESPACE.get((action, state), expected)
    assert step(*given, in_planned_namespace=True) is Step[expected.upper()]


def test_each_action_in_each_state_is_in_the_table() -> None:
    assert {(action, state) for action, state, _ in rows()} == {
        (action.name.lower(), state.name.lower()) for action in Action for state in PlannedState
    }
