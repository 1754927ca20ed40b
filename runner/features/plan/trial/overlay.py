"""State of the cluster after the planned writes of one run.

Owns: for each object that the run writes, its state before the first write and after the last one. The API server has
the state of all other objects. An object within a namespace that the run deletes counts as deleted. The state decides
how a write is answered.

Names of kinds are group and plural, as in paths, so that all versions of a kind share their objects. Pure.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

import orjson

from runner.core.kube.discovery import ApiResource
from runner.features.plan.trial.stored import UnknownValues, chosen
from runner.values.objects import GVK, Object, ObjectKey, metadata

Verb: TypeAlias = Literal["create", "change", "delete"]

_SET_BY_SERVER = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid", "generateName"}
)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Change of one object by one write, or the net change: from before the run's first write to after its last one."""

    verb: Verb
    gvk: GVK
    key: ObjectKey
    before: Object | None = field(repr=False)
    """None if the object does not exist, or if the run may not read it."""
    after: Object | None = field(repr=False)
    writes: int
    """Number of the run's writes of this object."""
    recreated: bool = False
    """True if the run deletes an existing object and creates it again; `verb` is then `change`."""
    reason: str = ""
    """Why the API server did not accept the last write as a dry run; empty if it did."""
    requested: Object | None = field(default=None, repr=False)
    """In the change by a single write: a new object as the run sent it."""

    @property
    def place(self) -> tuple[str, str, ObjectKey]:
        """Group, kind and key: the object, in any version."""
        return self.gvk.group, self.gvk.kind, self.key


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the proxy refused, because the API server cannot dry-run it or the plan cannot answer it."""

    verb: str
    """Verb as in RBAC, such as `create`; the method for non-resource requests."""
    resource: str
    """Resource and subresource, such as `pods/exec`; the path for non-resource requests."""
    key: ObjectKey
    """Namespace and name in the request; both can be empty."""
    reason: str

    def __str__(self) -> str:
        """Return the refusal as the reason why a plan is partial."""
        return f"refused {self.verb} {self.resource} {self.key}".rstrip() + f": {self.reason}"


def comparable(obj: Object) -> Object:
    """Return an object without the metadata that the API server sets on each write."""
    meta = {name: value for name, value in metadata(obj).items() if name not in _SET_BY_SERVER}
    return {**obj, "metadata": meta}


class KindId(NamedTuple):
    """Group and plural of a kind."""

    group: str
    plural: str

    @property
    def qualified(self) -> str:
        """Name in messages of the API server, such as `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_MOST_REFUSALS = 1000
_MOST_READS = 10_000
"""Recorded refusals. A task that retries forever must not fill the memory."""
_SUFFIX = "plan"
"""Names of objects with `generateName` end in this word and a number, so that two plans are equal."""
_SELECTING = frozenset({"labelSelector", "fieldSelector"})
_LONGEST_PREFIX = 55
"""Characters of a generated name's prefix. A label of DNS has at most 63."""


NAMESPACES = KindId("", "namespaces")


class PlannedState(Enum):
    """State of an object in the plan, compared with the API server."""

    UNCHANGED = "the plan does not write it"
    CHANGED = "the plan changes the object of the API server"
    CREATED = "the plan creates it"
    REPLACED = "the plan deletes the object of the API server, and creates it again"
    DELETED = "the plan deletes the object of the API server"
    WITHDRAWN = "the plan creates and deletes it"


ONLY_PLANNED = frozenset({PlannedState.CREATED, PlannedState.REPLACED})
"""States of objects that the API server does not have, although it can have an older one of the same name."""
_HIDDEN = frozenset({PlannedState.REPLACED, PlannedState.DELETED})
"""States of objects of the API server that do not exist in the plan."""


@dataclass(slots=True)
class PlannedObject:
    """An object that the run writes."""

    resource: ApiResource
    """The kind in the version of the first write."""
    key: ObjectKey
    existed: bool
    """True if the object exists at the API server."""
    before: Object | None = field(repr=False)
    after: Object | None = field(repr=False)
    """None after a planned deletion."""
    reason: str = ""
    writes: int = 0
    recreated: bool = False

    @property
    def state(self) -> PlannedState:
        """State of the object."""
        if self.after is None:
            return PlannedState.DELETED if self.existed else PlannedState.WITHDRAWN
        if not self.existed:
            return PlannedState.CREATED
        return PlannedState.REPLACED if self.recreated else PlannedState.CHANGED

    def change(self) -> PlannedChange | None:
        """Return the net change; None if there is none."""
        if self.state is PlannedState.WITHDRAWN:
            return None
        if (
            self.after is not None
            and self.before is not None
            and not self.recreated
            and comparable(self.after) == comparable(self.before)
        ):
            return None
        return PlannedChange(
            _verb(self.after, existed=self.existed),
            self.resource.gvk,
            self.key,
            self.before,
            self.after,
            self.writes,
            self.recreated and self.after is not None,
            self.reason,
        )


def _verb(after: Object | None, *, existed: bool) -> Verb:
    if after is None:
        return "delete"
    return "change" if existed else "create"


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


class Overlay:
    """Planned writes of one run. The proxy's event loop calls its methods; after the run, any thread can."""

    def __init__(self, generated: Counter[str] | None = None, unknown: UnknownValues | None = None) -> None:
        """Overlays that are parts of one run share `generated`, the counts of generated names, and `unknown`."""
        self.unknown = UnknownValues() if unknown is None else unknown
        """Values that only the API server chooses."""
        self.writing = asyncio.Lock()
        """Held during each planned write: a write depends on the result of the one before."""
        self.refusals: list[Refusal] = []
        """Refused requests, in their order."""
        self.writes: list[PlannedChange] = []
        """The change by each write, in their order."""
        self.times: list[float] = []
        """Time of each write, in seconds since the epoch."""
        self.reads: dict[str, str] = {}
        """Digests of what the API server had when the run first read it, by path and query."""
        self.size = 0
        """Bytes of the planned objects, as JSON. The handler refuses writes of a plan that is too large."""
        self._objects: dict[KindId, dict[ObjectKey, PlannedObject]] = {}
        self._order: list[PlannedObject] = []
        self._partial: dict[str, None] = {}
        self._generated: Counter[str] = Counter() if generated is None else generated
        self._pages: Counter[str] = Counter()

    # Results.

    def changes(self) -> list[PlannedChange]:
        """Return the net change of each object, in the order of the first writes."""
        return [change for planned in self._order if (change := planned.change()) is not None]

    @property
    def partial_reasons(self) -> list[str]:
        """Reasons why the plan can miss changes, without duplicates: each refused request, then the other ones."""
        return list(dict.fromkeys([*map(str, self.refusals), *self._partial]))

    # Recording.

    def has_written(self, since: float, until: float) -> bool:
        """Return whether the run sent a write between two moments."""
        return any(since <= at <= until for at in self.times)

    def refuse(self, refusal: Refusal) -> None:
        """Record a refused request."""
        if len(self.refusals) < _MOST_REFUSALS:
            self.refusals.append(refusal)

    def incomplete(self, reason: str) -> None:
        """Record why the plan can miss changes."""
        self._partial[reason] = None

    def saw(self, path: str, params: Sequence[tuple[str, str]], digest: str) -> None:
        """Record a read. The first one of a path counts, and the parts of a list in their order."""
        query = [param for param in params if param[0] in _SELECTING]
        place = f"{path}?{urlencode(query)}" if query else path
        if any(name == "continue" and value for name, value in params):
            self._pages[place] += 1
            place = f"{place}#{self._pages[place]}"
        if len(self.reads) < _MOST_READS:
            self.reads.setdefault(place, digest)
        else:
            self.incomplete("the run read too many objects")

    def record(
        self,
        resource: ApiResource,
        key: ObjectKey,
        before: Object | None,
        after: Object | None,
        *,
        existed: bool,
        reason: str = "",
        requested: Object | None = None,
    ) -> PlannedObject:
        """Record a write. `before` and `existed` matter for the first write of the object only.

        A `reason` means that the API server did not validate the write.
        """
        kind = KindId(resource.gvk.group, resource.plural)
        objects = self._objects.setdefault(kind, {})
        planned = objects.get(key)
        if planned is None:
            planned = objects[key] = PlannedObject(resource, key, existed, before, before)
            self._order.append(planned)
        if planned.existed and planned.after is None and after is not None and planned.writes:
            planned.recreated = True
        if after is not None and not planned.existed:
            for place, value in chosen(resource.gvk, key, after):
                if place.path.startswith("metadata."):
                    self.unknown.add(value, place)
        exists = existed if not planned.writes else planned.after is not None
        verb = _verb(after, existed=exists)
        self.writes.append(
            PlannedChange(verb, resource.gvk, key, planned.after, after, 1, reason=reason, requested=requested)
        )
        self.size += len(orjson.dumps(after)) if after is not None else 0
        self.times.append(time.time())
        planned.after, planned.reason = after, reason
        planned.writes += 1
        if kind == NAMESPACES and after is None:
            self._empty_namespace(key.name)
        return planned

    def generated_name(self, kind: KindId, namespace: str, prefix: str) -> str:
        """Return the next name for an object with `generateName`."""
        place = f"{kind.group}/{kind.plural}/{namespace}/{prefix}"
        self._generated[place] += 1
        return f"{prefix[:_LONGEST_PREFIX]}{_SUFFIX}{self._generated[place]}"

    # State.

    def find(self, kind: KindId, key: ObjectKey) -> PlannedObject | None:
        """Return a planned object; None if the run did not write it."""
        return self._objects.get(kind, {}).get(key)

    def of_kind(self, kind: KindId, namespace: str = "") -> Iterator[PlannedObject]:
        """Yield the planned objects of a kind in a namespace; empty: all."""
        for key, planned in self._objects.get(kind, {}).items():
            if not namespace or key.namespace == namespace:
                yield planned

    def state(self, kind: KindId, key: ObjectKey) -> PlannedState:
        """Return the state of an object. One that the plan does not write can also be missing at the API server."""
        if (planned := self.find(kind, key)) is not None:
            return planned.state
        if key.namespace and self.hides(NAMESPACES, ObjectKey("", key.namespace)):
            return PlannedState.DELETED
        return PlannedState.UNCHANGED

    def hides(self, kind: KindId, key: ObjectKey) -> bool:
        """Return whether the API server's object is deleted or replaced in the plan."""
        return self.state(kind, key) in _HIDDEN

    def replaces(self, resource: ApiResource, key: ObjectKey) -> bool:
        """Return whether the object of the cluster, if there is one, is not that of the plan."""
        return self.state(KindId(resource.gvk.group, resource.plural), key) is not PlannedState.UNCHANGED

    def object(self, resource: ApiResource, key: ObjectKey) -> Object | None:
        """Return a planned object; None if there is none."""
        planned = self.find(KindId(resource.gvk.group, resource.plural), key)
        return None if planned is None else planned.after

    def has_namespace(self, name: str) -> bool | None:
        """Return whether a namespace exists in the plan; None if the run did not write it."""
        planned = self.find(NAMESPACES, ObjectKey("", name))
        return None if planned is None else planned.after is not None

    def only_planned(self, namespace: str) -> bool:
        """Return whether a namespace exists in the plan only, so that the API server cannot validate its objects."""
        return bool(namespace) and self.state(NAMESPACES, ObjectKey("", namespace)) in ONLY_PLANNED

    def affects(self, kind: KindId, namespace: str) -> bool:
        """Return whether a list of a kind in a namespace (empty: all) differs from the API server's."""
        if any(True for _ in self.of_kind(kind, namespace)):
            return True
        spaces = self._objects.get(NAMESPACES, {})
        return any(space.state in _HIDDEN for key, space in spaces.items() if namespace in {"", key.name})

    def _empty_namespace(self, name: str) -> None:
        for objects in self._objects.values():
            for key, planned in objects.items():
                if key.namespace == name:
                    planned.after, planned.reason = None, ""
