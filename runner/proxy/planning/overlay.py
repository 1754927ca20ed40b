"""State of the cluster after the planned writes of one run.

Owns: for each object that the run writes, its state before the first write and after the last one. The API server has
the state of all other objects. An object within a namespace that the run deletes counts as deleted.

Names of kinds are group and plural, as in paths, so that all versions of a kind share their objects. Pure.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

from runner.kube.discovery import ApiResource
from runner.objects import Object, ObjectKey
from runner.proxy.planning.changes import PlannedChange, Refusal, Verb, comparable
from runner.proxy.planning.unknown import UnknownValues, chosen

_MOST_REFUSALS = 1000
"""Recorded refusals. A task that retries forever must not fill the memory."""
_SUFFIX = "plan"
"""Names of objects with `generateName` end in this word and a number, so that two plans are equal."""
_SELECTING = frozenset({"labelSelector", "fieldSelector"})
_LONGEST_PREFIX = 55
"""Characters of a generated name's prefix. A label of DNS has at most 63."""


class KindId(NamedTuple):
    """Group and plural of a kind."""

    group: str
    plural: str

    @property
    def qualified(self) -> str:
        """Name in messages of the API server, such as `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = KindId("", "namespaces")


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

    def change(self) -> PlannedChange | None:
        """Return the net change; None if there is none."""
        if self.after is None and not self.existed:
            return None
        if (
            self.after is not None
            and self.before is not None
            and not self.recreated
            and comparable(self.after) == comparable(self.before)
        ):
            return None
        verb: Verb = "create"
        if self.existed:
            verb = "delete" if self.after is None else "change"
        return PlannedChange(
            verb,
            self.resource.gvk,
            self.key,
            self.before,
            self.after,
            self.writes,
            self.recreated and self.after is not None,
            self.reason,
        )


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """One write of the run."""

    resource: ApiResource
    key: ObjectKey
    existed: bool
    """True if the object existed before the write."""
    before: Object | None = field(repr=False)
    """None if the object did not exist, or if the run may not read it."""
    after: Object | None = field(repr=False)
    """None after a deletion."""
    reason: str
    """Why the API server did not accept the write as a dry run; empty if it did."""
    requested: Object | None = field(repr=False)
    """A new object as the run sent it."""

    def change(self) -> PlannedChange:
        """Return the change that this write makes alone."""
        verb: Verb = "delete" if self.after is None else "change" if self.existed else "create"
        return PlannedChange(
            verb, self.resource.gvk, self.key, self.before, self.after, writes=1, recreated=False, reason=self.reason
        )


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
        self.writes: list[PlannedWrite] = []
        """Each write, in their order."""
        self.reads: dict[str, str] = {}
        """Digests of what the API server had when the run first read it, by path and query."""
        self._objects: dict[KindId, dict[ObjectKey, PlannedObject]] = {}
        self._order: list[PlannedObject] = []
        self._partial: dict[str, None] = {}
        self._generated: Counter[str] = Counter() if generated is None else generated
        self._pages: Counter[str] = Counter()

    # Results.

    def changes(self) -> list[PlannedChange]:
        """Return the net change of each object, in the order of the first writes."""
        return [change for each in self._order if (change := each.change()) is not None]

    @property
    def partial_reasons(self) -> list[str]:
        """Reasons why the plan can miss changes, without duplicates: each refused request, then the other ones."""
        refused = (
            f"refused {each.verb} {each.resource} {each.key}".rstrip() + f": {each.reason}" for each in self.refusals
        )
        return list(dict.fromkeys([*refused, *self._partial]))

    # Recording.

    def refuse(self, refusal: Refusal) -> None:
        """Record a refused request."""
        if len(self.refusals) < _MOST_REFUSALS:
            self.refusals.append(refusal)

    def incomplete(self, reason: str) -> None:
        """Record why the plan can miss changes."""
        self._partial[reason] = None

    def saw(self, path: str, params: Sequence[tuple[str, str]], digest: str) -> None:
        """Record a read. The first one of a path counts, and the parts of a list in their order."""
        query = [each for each in params if each[0] in _SELECTING]
        place = f"{path}?{urlencode(query)}" if query else path
        if any(name == "continue" and value for name, value in params):
            self._pages[place] += 1
            place = f"{place}#{self._pages[place]}"
        self.reads.setdefault(place, digest)

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
        self.writes.append(PlannedWrite(resource, key, exists, planned.after, after, reason, requested))
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

    def hides(self, kind: KindId, key: ObjectKey) -> bool:
        """Return whether the API server's object is deleted or replaced in the plan."""
        if (planned := self.find(kind, key)) is not None:
            return planned.existed and (planned.after is None or planned.recreated)
        return bool(key.namespace) and self.hides(NAMESPACES, ObjectKey("", key.namespace))

    def has_namespace(self, name: str) -> bool | None:
        """Return whether a namespace exists in the plan; None if the run did not write it."""
        planned = self.find(NAMESPACES, ObjectKey("", name))
        return None if planned is None else planned.after is not None

    def only_planned(self, namespace: str) -> bool:
        """Return whether a namespace exists in the plan only, so that the API server cannot validate its objects."""
        planned = self.find(NAMESPACES, ObjectKey("", namespace)) if namespace else None
        return planned is not None and planned.after is not None and (not planned.existed or planned.recreated)

    def affects(self, kind: KindId, namespace: str) -> bool:
        """Return whether a list of a kind in a namespace (empty: all) differs from the API server's."""
        if any(True for _ in self.of_kind(kind, namespace)):
            return True
        spaces = self._objects.get(NAMESPACES, {})
        changed = (each for key, each in spaces.items() if not namespace or key.name == namespace)
        return any(each.existed and (each.after is None or each.recreated) for each in changed)

    def _empty_namespace(self, name: str) -> None:
        for objects in self._objects.values():
            for key, planned in objects.items():
                if key.namespace == name:
                    planned.after, planned.reason = None, ""
