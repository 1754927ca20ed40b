"""Decision how a plan run's write is answered, by the state of its object in the plan. Pure."""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType

from runner.features.plan.trial.overlay import PlannedState


class Action(Enum):
    """Kind of a write. An update of a subresource is a change."""

    CREATE = auto()
    CHANGE = auto()
    DELETE = auto()
    EVICT = auto()


class Step(Enum):
    """How the write is answered."""

    SEND = "as a dry run, which the API server answers"
    COMPUTE = "computed on the planned object; the API server validates the result, if it can"
    REPLACE = "computed; the API server validates it as an update of the object that the plan deletes"
    LOCAL = "in the plan only: the API server knows neither the object nor its namespace"
    EXISTS = "with the error that the object exists"
    MISSING = "with the error that the object does not exist"
    REFUSE = "with a refusal: nothing can answer it"


_STEPS = MappingProxyType(
    {
        PlannedState.UNCHANGED: (Step.SEND, Step.SEND, Step.SEND, Step.SEND),
        PlannedState.CHANGED: (Step.EXISTS, Step.COMPUTE, Step.SEND, Step.SEND),
        PlannedState.CREATED: (Step.EXISTS, Step.COMPUTE, Step.LOCAL, Step.REFUSE),
        PlannedState.REPLACED: (Step.EXISTS, Step.COMPUTE, Step.LOCAL, Step.SEND),
        PlannedState.DELETED: (Step.REPLACE, Step.MISSING, Step.MISSING, Step.MISSING),
        PlannedState.WITHDRAWN: (Step.SEND, Step.MISSING, Step.MISSING, Step.MISSING),
    }
)
"""Steps by state, in the order of the actions."""
_IN_PLANNED_NAMESPACE = MappingProxyType(
    {
        (Action.CREATE, Step.SEND): Step.LOCAL,
        (Action.CREATE, Step.REPLACE): Step.LOCAL,
        (Action.CHANGE, Step.SEND): Step.MISSING,
    }
)


def step(action: Action, state: PlannedState, *, in_planned_namespace: bool) -> Step:
    """Return how a write is answered. `in_planned_namespace`: the plan creates the namespace of the object."""
    usual = dict(zip(Action, _STEPS[state], strict=True))[action]
    return _IN_PLANNED_NAMESPACE.get((action, usual), usual) if in_planned_namespace else usual
