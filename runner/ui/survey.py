"""The state of every object, kept so that a look at thousands costs only what changed since the last one.

Flow: `refresh` parses the objects whose resourceVersion it has not seen, some at a time, so that the event loop does
its work in between; `page` then sorts and filters what is known. Bounded: three short values for each object that is
watched. Reads informers and queues; writes nowhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from runner.kube.cache import Summary
from runner.objects import GVK, Object, ObjectKey, is_deleting, is_paused, metadata
from runner.status.conditions import Condition, conditions_of, find
from runner.status.kstatus import READY, RECONCILING, STALLED
from runner.watches.watch import Watch
from runner.workqueue.queue import WorkQueue

_AT_ONCE = 100
"""Objects that are parsed before others get their turn: about a millisecond's worth."""


class Known(Protocol):
    """The objects of a kind; an `Informer`."""

    revision: int

    def all_keys(self) -> list[ObjectKey]:
        """Their keys."""
        ...

    def summary(self, key: ObjectKey) -> Summary | None:
        """What is known of one without parsing it."""
        ...

    def get(self, key: ObjectKey) -> Object | None:
        """One of them."""
        ...


class Kind(Protocol):
    """A kind that is watched; a `Controller`."""

    watch: Watch
    queue: WorkQueue
    workers: int

    @property
    def informer(self) -> Known:
        """Its objects."""
        ...

    def problem(self) -> str | None:
        """What keeps it from being watched."""
        ...


class State(Enum):
    """How an object is, the worst first."""

    FAILING = "failing"
    STALLED = "stalled"
    WORKING = "in progress"
    DELETING = "being deleted"
    UNKNOWN = "not known"
    PAUSED = "paused"
    READY = "ready"


_RANK = {state: rank for rank, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Health:
    """How an object is."""

    state: State
    since: str = ""
    """As the API writes times; empty where nobody says."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Noted:
    version: str
    state: State


class Row(NamedTuple):
    """An object in a list. Rows sort as they are to be shown."""

    rank: int
    """Of its state, the worst is 0."""
    kind: int
    """Which of the kinds, in their order."""
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Wish:
    """Which objects are asked for. Empty: all."""

    gvk: GVK | None = None
    state: str = ""
    search: str = ""
    """A part of `namespace/name`, whatever its case."""


def health(obj: Object) -> Health:
    """Read an object's state from its conditions: those of runs, or those that tools wait for."""
    conditions = conditions_of(obj)
    if is_deleting(obj):
        return _told(State.DELETING, _true(conditions, "Failure"), str(metadata(obj).get("deletionTimestamp")))
    deciding = ((State.STALLED, STALLED), (State.FAILING, "Failure"))
    if (bad := _first(conditions, deciding)) is not None:
        return bad
    if is_paused(obj):
        return Health(State.PAUSED)
    others = (
        (State.WORKING, RECONCILING),
        (State.READY, READY),
        (State.READY, "Successful"),
        (State.WORKING, "Running"),
    )
    return _first(conditions, others) or _told(State.UNKNOWN, find(conditions, "Running"))


def _first(conditions: Sequence[Condition], deciding: Iterable[tuple[State, str]]) -> Health | None:
    """The state that the first of these conditions stands for which is true."""
    for state, kind in deciding:
        if (found := _true(conditions, kind)) is not None:
            return _told(state, found)
    return None


def _true(conditions: Sequence[Condition], kind: str) -> Condition | None:
    found = find(conditions, kind)
    return found if found is not None and found.get("status") == "True" else None


def _told(state: State, condition: Condition | None, since: str = "") -> Health:
    condition = condition or {}
    return Health(state, since or str(condition.get("lastTransitionTime") or ""), str(condition.get("message") or ""))


@dataclass(slots=True)
class Survey:
    """See the module."""

    kinds: Sequence[Kind]
    _states: dict[GVK, dict[ObjectKey, _Noted]] = field(default_factory=dict)
    _seen: dict[GVK, int] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self) -> None:
        """Look at what changed."""
        async with self._lock:
            for kind in self.kinds:
                gvk, revision = kind.watch.gvk, kind.informer.revision
                if self._seen.get(gvk) != revision:
                    self._states[gvk] = await self._look(kind, self._states.get(gvk, {}))
                    self._seen[gvk] = revision

    async def _look(self, kind: Kind, known: dict[ObjectKey, _Noted]) -> dict[ObjectKey, _Noted]:
        found: dict[ObjectKey, _Noted] = {}
        parsed = 0
        for key in kind.informer.all_keys():
            summary, noted = kind.informer.summary(key), known.get(key)
            if summary is not None and noted is not None and noted.version == summary.resource_version:
                found[key] = noted
                continue
            obj = kind.informer.get(key)
            if obj is not None:
                found[key] = _Noted(summary.resource_version if summary is not None else "", health(obj).state)
            parsed += 1
            if parsed % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    def counts(self, gvk: GVK) -> dict[str, int]:
        """How many objects of a kind are in each state, as of the last look."""
        counted = Counter(noted.state for noted in self._states.get(gvk, {}).values())
        return {state.value: counted[state] for state in State if counted[state]}

    def rows(self, wish: Wish) -> list[Row]:
        """The objects that are asked for: the worst first, then by the order of kinds, namespace and name."""
        search = wish.search.lower()
        found: list[Row] = []
        for index, kind in enumerate(self.kinds):
            if wish.gvk in {None, kind.watch.gvk}:
                states = self._states.get(kind.watch.gvk, {})
                found += [
                    Row(_RANK[noted.state], index, key)
                    for key, noted in states.items()
                    if (not wish.state or noted.state.value == wish.state)
                    and (not search or search in str(key).lower())
                ]
        found.sort()
        return found
