"""State and fields of objects on the status page.

`refresh` parses only objects with a new resourceVersion, in batches, so that it does not block the event loop. `rows`
sorts and filters the cached states. The cache has two short values for each watched object.

Hidden are the values that the object's last run treats as secret, values under keys such as `password`, and passwords
in URLs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import orjson

from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking.forms import is_sensitive, parts
from runner.core.masking.masker import MASK, TOO_SLOW, Budget, SearchTimeoutError
from runner.core.reconcile.controller import Controller
from runner.core.status.conditions import Condition, find
from runner.core.status.kstatus import READY, RECONCILING, STALLED
from runner.values.objects import GVK, Object, ObjectKey, conditions_of, is_deleting, is_paused, mapping, metadata

_LONGEST = 32 << 10
"""Bytes of what is shown."""
_BUDGET = 0.1
"""Seconds of CPU time to search for values."""


def fields_of(obj: Object, secrets: RunSecrets | None) -> dict[str, Any] | str:
    """Return `spec` and `status`, without conditions; or why they are not shown. `secrets`: those of the last run."""
    status, generation = mapping(obj.get("status")), metadata(obj).get("generation")
    if secrets is None or status.get("observedGeneration", generation) != generation:
        return "They are shown when a run of this operator with the current spec has ended."
    if secrets.is_exhausted:
        return secrets.withheld
    status = {name: value for name, value in status.items() if name != "conditions"}
    fields = {name: value for name, value in {"spec": obj.get("spec"), "status": status}.items() if value}
    if len(orjson.dumps(fields)) > _LONGEST:
        return "They are too large to be shown."
    try:
        shown: dict[str, Any] = secrets.masker.value(_hidden(fields), Budget(_BUDGET))
    except SearchTimeoutError:
        return TOO_SLOW
    return shown


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        names_secret = is_sensitive(str(value.get("name")))
        return {
            key: MASK if item and (is_sensitive(key) or (names_secret and key == "value")) else _hidden(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return list(map(_hidden, value))
    if isinstance(value, str):
        for part in parts(value):
            value = value.replace(part, MASK) if part else value
    return value


_BATCH = 100
"""Objects to parse without a break, which takes about a millisecond."""


class DisplayState(Enum):
    """State of an object, in order of severity."""

    FAILING = "failing"
    STALLED = "stalled"
    WORKING = "in progress"
    DELETING = "being deleted"
    UNKNOWN = "unknown"
    PAUSED = "paused"
    READY = "ready"


_RANK = {state: rank for rank, state in enumerate(DisplayState)}


@dataclass(frozen=True, slots=True)
class DisplayStatus:
    """State of an object, with time and message of the condition."""

    state: DisplayState
    since: str = ""
    """RFC 3339; empty if unknown."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Noted:
    version: str
    state: DisplayState


class ObjectRow(NamedTuple):
    """An object in a list. Rows sort in display order."""

    rank: int
    """Rank of its state; 0 is the worst."""
    kind: int
    """Index of the kind."""
    key: ObjectKey


_DECIDING = (
    (DisplayState.STALLED, STALLED),
    (DisplayState.FAILING, "Failure"),
    (DisplayState.WORKING, RECONCILING),
    (DisplayState.READY, READY),
    (DisplayState.READY, "Successful"),
    (DisplayState.WORKING, "Running"),
)
"""States by conditions; the first that is true decides."""
_IN_SPITE_OF_PAUSE = {DisplayState.STALLED, DisplayState.FAILING}


def display_status(obj: Object) -> DisplayStatus:
    """Return the state of an object according to its conditions."""
    conditions = conditions_of(obj)
    true = [(state, at) for state, kind in _DECIDING if (at := find(conditions, kind)) and at.get("status") == "True"]
    if is_deleting(obj):
        failure = next((condition for state, condition in true if state is DisplayState.FAILING), None)
        return _status(DisplayState.DELETING, failure, str(metadata(obj).get("deletionTimestamp")))
    if is_paused(obj) and not (true and true[0][0] in _IN_SPITE_OF_PAUSE):
        return DisplayStatus(DisplayState.PAUSED)
    return _status(*true[0]) if true else _status(DisplayState.UNKNOWN, find(conditions, "Running"))


def _status(state: DisplayState, condition: Condition | None, since: str = "") -> DisplayStatus:
    condition = condition or {}
    return DisplayStatus(
        state, since or str(condition.get("lastTransitionTime") or ""), str(condition.get("message") or "")
    )


@dataclass(slots=True)
class ObjectStates:
    """Cache of states."""

    kinds: Sequence[Controller]
    _states: dict[GVK, dict[ObjectKey, _Noted]] = field(default_factory=dict)
    _seen: dict[GVK, int] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self) -> None:
        """Update the states of changed objects."""
        async with self._lock:
            for kind in self.kinds:
                gvk, revision = kind.watch.gvk, kind.informer.revision
                if self._seen.get(gvk) != revision:
                    self._states[gvk] = await self._updated(kind, self._states.get(gvk, {}))
                    self._seen[gvk] = revision

    async def _updated(self, kind: Controller, known: dict[ObjectKey, _Noted]) -> dict[ObjectKey, _Noted]:
        states: dict[ObjectKey, _Noted] = {}
        parsed = 0
        for key in kind.informer.all_keys():
            summary, noted = kind.informer.summary(key), known.get(key)
            if summary is not None and noted is not None and noted.version == summary.resource_version:
                states[key] = noted
                continue
            obj = kind.informer.get(key)
            if obj is not None:
                states[key] = _Noted(summary.resource_version if summary is not None else "", display_status(obj).state)
            parsed += 1
            if parsed % _BATCH == 0:
                await asyncio.sleep(0)
        return states

    def counts(self, gvk: GVK) -> dict[str, int]:
        """Return the number of objects of a kind by state, as of the last refresh."""
        counted = Counter(noted.state for noted in self._states.get(gvk, {}).values())
        return {state.value: counted[state] for state in DisplayState if counted[state]}

    def rows(self, gvk: GVK | None = None, state: str = "", search: str = "") -> list[ObjectRow]:
        """Return the matching objects by severity, then kind, namespace and name. Empty arguments match all.

        `search` is part of `namespace/name`; case is ignored.
        """
        search = search.lower()
        rows: list[ObjectRow] = []
        for index, kind in enumerate(self.kinds):
            if gvk in {None, kind.watch.gvk}:
                states = self._states.get(kind.watch.gvk, {})
                rows += [
                    ObjectRow(_RANK[noted.state], index, key)
                    for key, noted in states.items()
                    if (not state or noted.state.value == state) and (not search or search in str(key).lower())
                ]
        rows.sort()
        return rows
