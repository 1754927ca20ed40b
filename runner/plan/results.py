"""Result of planning one resource, and the values of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from runner.objects import GVK, ObjectKey, ObjectRef
from runner.plan.fields import FieldChange
from runner.plan.tasks import UnplannedTask
from runner.proxy.planning.changes import Verb

State: TypeAlias = Literal["complete", "partial", "failed", "skipped"]
"""`complete`: every task was planned. `partial`: some tasks were not. `failed`: the run failed, so that the changes end
at the failed task. `skipped`: the operator would not run the resource.
"""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """Change of one object. Secret values in its fields are masked."""

    verb: Verb
    gvk: GVK
    key: ObjectKey
    fields: tuple[FieldChange, ...]
    not_validated: str = ""
    """Why the API server could not check the change; empty if it did."""
    recreated: bool = False
    """Whether the run deletes the object and creates it again."""
    is_collected: bool = False
    """Whether Kubernetes deletes the object, because its owners are deleted."""


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """Plan of one custom resource."""

    resource: ObjectRef
    state: State
    changes: tuple[ObjectChange, ...] = ()
    unplanned: tuple[UnplannedTask, ...] = ()
    more_unplanned: int = 0
    """Number of tasks beyond those in `unplanned`."""
    message: str = ""
    """Why the run failed, or why the resource was skipped."""
    finalizing: bool = False
    """Whether the plan is for the finalizer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plans of all requested resources."""

    resources: Sequence[ResourcePlan]

    @property
    def has_failed(self) -> bool:
        """True if the plan of a resource failed."""
        return any(each.state == "failed" for each in self.resources)

    @property
    def has_changes(self) -> bool:
        """True if a resource has changes."""
        return any(each.changes for each in self.resources)
