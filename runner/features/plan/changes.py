"""Report of a plan run, with its changes: normalised, compared and masked. Pure.

Values of Secrets, and other values that the run treats as secret, are masked. A change of a masked value stays visible:
its new value is `<masked, changed>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking.masker import MASK, Budget
from runner.core.status.report import OwnStatus
from runner.features.plan.fields import ABSENT, FieldChange, Value, differences, normalised
from runner.features.plan.tasks import UnplannedTask
from runner.features.plan.trial.overlay import Overlay, PlannedChange, Verb
from runner.features.plan.trial.stored import UnknownValues
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

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

    def __str__(self) -> str:
        return f"{self.verb} {self.gvk.kind} {self.key}"

    def as_json(self) -> dict[str, Any]:
        """Return a JSON value with all fields of the object."""
        return {
            "verb": self.verb,
            "apiVersion": self.gvk.api_version,
            "kind": self.gvk.kind,
            "namespace": self.key.namespace,
            "name": self.key.name,
            "recreated": self.recreated,
            "notValidated": self.not_validated,
            "fields": [field.as_json() for field in self.fields],
        }


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
    step: int = 0
    """Step of a rollout that reaches the resource; 0: the watch has none."""
    unwritten: tuple[ObjectRef, ...] = ()
    """Objects that the resource owns, and that the run neither wrote nor read. The command `plan` finds them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plans of all requested resources."""

    resources: Sequence[ResourcePlan]

    @property
    def has_failed(self) -> bool:
        """True if the plan of a resource failed."""
        return any(resource.state == "failed" for resource in self.resources)

    @property
    def has_changes(self) -> bool:
        """True if a resource has changes."""
        return any(resource.changes for resource in self.resources)


@dataclass(frozen=True, slots=True)
class PlannedOwner:
    """The object of a plan run."""

    ref: ObjectRef
    own: OwnStatus
    """Parts of its status that only the operator writes."""

    def is_changed_by(self, change: PlannedChange) -> bool:
        """Return whether a change is one of this object, in any version."""
        return change.place == (self.ref.gvk.group, self.ref.gvk.kind, self.ref.key)


_HOST = GVK("", "ansible", "Host")
"""Kind of hosts in a plan."""
_SERVICE = GVK("", "v1", "Service")
_CHOSEN = frozenset({"clusterIP", "clusterIPs", "healthCheckNodePort", "nodePort"})
"""Fields of a Service that the API server sets if the client does not."""
_TIMES = frozenset({"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime"})
"""Fields of a status that are the time of the write."""
MASKED = "<masked>"
CHANGED = "<masked, changed>"
_SECRET = GVK("", "v1", "Secret")
_VALUES = ("data", "stringData")
_ALL = "(fields)"
"""Path of the only field of an object whose values are withheld."""
_BUDGET = 5.0
"""Seconds of CPU time to mask the changes of one object."""


def reported(
    planned: Iterable[PlannedChange],
    secrets: RunSecrets,
    owner: PlannedOwner | None = None,
    unknown: UnknownValues | None = None,
) -> tuple[ObjectChange, ...]:
    """Return the changes of a run. A change of nothing but maintained metadata is none.

    `owner` is the run's object: parts of its status that only the operator writes are not compared. The values of
    `unknown` are marked.

    Raises:
        SearchTimeoutError: the search for secret values took too long.
        RecursionError: an object is nested too deeply.
    """
    mark = UnknownValues().marked if unknown is None else unknown.marked
    changes = (_reported(change, _with_marks(compared(change, owner), mark), secrets) for change in planned)
    return tuple(change for change in changes if change is not None)


def of_hosts(hosts: Mapping[str, Mapping[str, str]]) -> tuple[ObjectChange, ...]:
    """Return the changes of hosts: tasks, with their actions, by the name of the host."""
    return tuple(
        ObjectChange(
            verb="change",
            gvk=_HOST,
            key=ObjectKey("", host),
            fields=tuple(FieldChange(f"task {task!r}", ABSENT, action) for task, action in tasks.items()),
        )
        for host, tasks in sorted(hosts.items())
    )


def compared(change: PlannedChange, owner: PlannedOwner | None) -> tuple[FieldChange, ...]:
    """Return the fields of a change with their raw values; see `reported`."""
    return _fields(_foreign(change, owner))


def _reported(change: PlannedChange, fields: tuple[FieldChange, ...], secrets: RunSecrets) -> ObjectChange | None:
    if change.verb == "change" and not fields and not change.recreated:
        return None
    return ObjectChange(
        verb=change.verb,
        gvk=change.gvk,
        key=change.key,
        fields=masked(change.gvk, fields, secrets),
        not_validated=change.reason,
        recreated=change.recreated,
    )


def _with_marks(fields: tuple[FieldChange, ...], mark: Callable[[Any], Any]) -> tuple[FieldChange, ...]:
    return tuple(FieldChange(field.path, field.before, mark(field.after)) for field in fields)


def _foreign(change: PlannedChange, owner: PlannedOwner | None) -> PlannedChange:
    """Remove the operator's own parts of the owner's status."""
    if owner is None or not owner.is_changed_by(change):
        return change
    before, after = (_without(obj, owner.own) for obj in (change.before, change.after))
    return replace(change, before=before, after=after)


def _without(obj: Object | None, own: OwnStatus) -> Object | None:
    if obj is None or not isinstance(status := obj.get("status"), dict):
        return obj
    rest = {name: value for name, value in obj.items() if name != "status"}
    kept = own.removed_from(status)
    return {**rest, "status": kept} if kept else rest


def _fields(change: PlannedChange) -> tuple[FieldChange, ...]:
    if change.after is None:
        return ()
    if change.before is None:
        # The status of a new object is the API server's, unless a later write of the run changed it.
        with_status = change.writes > 1 and bool(change.after.get("status"))
        return (FieldChange("", ABSENT, normalised(change.after, with_status=with_status, created=True)),)
    with_status = change.before.get("status") != change.after.get("status") and not change.recreated
    before, after = (
        normalised(obj, with_status=with_status, created=change.recreated) for obj in (change.before, change.after)
    )
    return differences(before, after)


def lasting(gvk: GVK, field: FieldChange) -> FieldChange:
    """Remove values that differ between dry runs of one write: chosen by the API server, and times in a status."""
    if field.path.startswith("status"):
        return _without_names(field, _TIMES)
    if gvk == _SERVICE and field.before is ABSENT:
        return _without_names(field, _CHOSEN)
    return field


def _without_names(field: FieldChange, names: frozenset[str]) -> FieldChange:
    if field.path.rpartition(".")[2].partition("[")[0] in names:
        return FieldChange(field.path, ABSENT, ABSENT)
    return FieldChange(field.path, _kept(field.before, names), _kept(field.after, names))


def _kept(value: Any, names: Iterable[str]) -> Any:
    if isinstance(value, dict):
        return {name: _kept(item, names) for name, item in value.items() if name not in names}
    return [_kept(item, names) for item in value] if isinstance(value, list) else value


def masked(gvk: GVK, changes: Iterable[FieldChange], secrets: RunSecrets) -> tuple[FieldChange, ...]:
    """Return the changes of an object without secret values.

    Raises:
        SearchTimeoutError: the search for secret values took too long.
    """
    if secrets.is_exhausted:
        return (FieldChange(_ALL, ABSENT, secrets.withheld),)
    budget = Budget(_BUDGET)
    return tuple(_masked(gvk, change, secrets, budget) for change in changes)


def _masked(gvk: GVK, change: FieldChange, secrets: RunSecrets, budget: Budget) -> FieldChange:
    if gvk == _SECRET:
        change = _of_secret(change)
    before, after = (_value(value, secrets, budget) for value in (change.before, change.after))
    path = str(_value(change.path, secrets, budget)) if change.path else ""
    if before == after and change.before != change.after:
        after = _marked(after)
    return FieldChange(path, before, after)


def _of_secret(change: FieldChange) -> FieldChange:
    """Mask all values of a Secret."""
    if not change.path:
        before, after = (_mask_values(value) for value in (change.before, change.after))
        return FieldChange("", before, after)
    if change.path.startswith(_VALUES):
        before, after = (_all_masked(value) for value in (change.before, change.after))
        return FieldChange(change.path, before, CHANGED if before == after == MASKED else after)
    return change


def _mask_values(secret: Value) -> Value:
    if not isinstance(secret, dict):
        return secret
    return {name: _all_masked(value) if name in _VALUES else value for name, value in secret.items()}


def _all_masked(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _all_masked(item) for name, item in value.items()}
    return value if value is ABSENT else MASKED


def _value(value: Value, secrets: RunSecrets, budget: Budget) -> Value:
    return value if value is ABSENT else secrets.masker.value(value, budget)


def _marked(value: Any) -> Any:
    """Mark the masked parts of a changed value."""
    if isinstance(value, str):
        return value.replace(MASK, CHANGED) if MASK in value else CHANGED
    if isinstance(value, dict):
        return {name: _marked(item) if _has_mask(item) else item for name, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) if _has_mask(item) else item for item in value]
    return value


def _has_mask(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return isinstance(value, str) and MASK in value


_WHOLE = "(object)"
"""Field of an object that only one of the plans writes."""


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """A field whose value differs in each run."""

    gvk: GVK
    key: ObjectKey
    path: str
    is_new: bool
    """Whether the run creates the object."""

    @property
    def is_covered(self) -> bool:
        """True if an approval covers each value: the field is one of the data of a new Secret."""
        return self.is_new and self.gvk == _SECRET and self.path.startswith("data")

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.key} {self.path}"


def between(one: Overlay, two: Overlay, owner: PlannedOwner) -> tuple[DifferingValue, ...]:
    """Return the fields whose planned values differ in two plans of one resource, without the values.

    These are random values, times, and values computed from them. The raw values are compared, because masked values of
    two plans are equal.
    """
    first, second = _by_object(one), _by_object(two)
    differing: list[DifferingValue] = []
    for place in dict.fromkeys((*first, *second)):
        before, after = first.get(place), second.get(place)
        change = before or after
        if change is None:
            continue
        is_new = change.verb == "create"
        if before is None or after is None:
            paths: Iterable[str] = (_WHOLE,)
        else:
            paths = _paths(_values(before, one, owner), _values(after, two, owner))
        differing += [DifferingValue(change.gvk, change.key, path, is_new) for path in paths]
    return tuple(differing)


def _by_object(overlay: Overlay) -> dict[tuple[str, str, ObjectKey], PlannedChange]:
    return {change.place: change for change in overlay.changes()}


def _values(change: PlannedChange, overlay: Overlay, owner: PlannedOwner) -> dict[str, Any]:
    """Return the new values of a change by path, without those that the API server chooses."""
    fields = (lasting(change.gvk, field) for field in compared(change, owner))
    return {field.path: overlay.unknown.marked(field.after) for field in fields}


def _paths(one: dict[str, Any], two: dict[str, Any]) -> Iterator[str]:
    for path in dict.fromkeys((*one, *two)):
        if path not in one or path not in two:
            yield path or _WHOLE
        elif not path:
            yield from (field.path for field in differences(one[path], two[path]))
        elif one[path] != two[path]:
            yield path
