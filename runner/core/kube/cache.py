"""Cache of one kind's objects.

Owns: the objects, as JSON text without `managedFields`, each with a `Summary` for decisions. Parsed objects would need
more memory and would be shared. `get` parses the text, so that the caller owns the result.

Guarantees: only `apply` writes. A replay (an object with the cached resourceVersion) is not a change. After `Synced`
the scope contains exactly the objects of the list. An object that was deleted and recreated while no watch was open is
one change with two different uids.

Resource versions are opaque: compared for equality, never for order. Must not import: watch, client.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import orjson

from runner.core.kube import decode
from runner.core.kube.object_state import changed_fields
from runner.core.kube.watch_events import Applied, Deleted, Relist, Requested, Restarted, Synced, WatchEvent
from runner.values.digests import short_digest
from runner.values.objects import (
    LAST_RUN,
    PREFIX,
    LastResult,
    Object,
    ObjectKey,
    annotations_of,
    created_at,
    finalizers_of,
    is_deleting,
    is_paused,
    key_of,
    last_result,
    metadata,
    uid_of,
)

_NO_MARKS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Summary:
    """Parts of an object that decisions need."""

    uid: str
    resource_version: str
    generation: int | None
    """None for kinds without a generation."""
    deleting: bool
    paused: bool
    finalizers: tuple[str, ...]
    annotations_digest: bytes
    content_digest: bytes
    """Digest without `managedFields` and `resourceVersion`, for kinds without a generation; otherwise empty."""
    created: float = 0.0
    """Seconds since the epoch."""
    marks: Mapping[str, str] = field(default_factory=lambda: _NO_MARKS)
    """Annotations by which users control the operator, with their full names."""
    result: LastResult = LastResult.SUCCEEDED
    """Result of the object's last run."""
    excess: str = ""
    """Why a run cannot receive it; see `decode.excess`."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object was added (`old` is None), changed or removed (`new` is None)."""

    key: ObjectKey
    old: Summary | None
    new: Summary | None
    initial: bool
    """True if the object is part of the first list of its scope."""
    fields: tuple[str, ...] = ()
    """Changed fields of the content, such as `spec.size`."""


@dataclass(slots=True)
class _Entry:
    summary: Summary
    text: bytes
    scope: str


class Cache:
    """Objects of one kind."""

    def __init__(self, kept: Callable[[Object], Object] = lambda obj: obj) -> None:
        """`kept` returns the part of an object to cache."""
        self._kept = kept
        self._entries: dict[ObjectKey, _Entry] = {}
        self._relist = Relist()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def keys(self) -> KeysView[ObjectKey]:
        """Return the keys of all objects."""
        return self._entries.keys()

    def created(self) -> list[tuple[ObjectKey, float]]:
        """Return all objects with their creation times."""
        return [(key, entry.summary.created) for key, entry in self._entries.items()]

    def get(self, key: ObjectKey) -> Object | None:
        """Return a copy of an object, without `managedFields`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        obj: Object = orjson.loads(entry.text)
        return obj

    def summary(self, key: ObjectKey) -> Summary | None:
        """Return the summary of an object, without parsing it."""
        entry = self._entries.get(key)
        return entry.summary if entry is not None else None

    def apply(self, scope: str, event: WatchEvent) -> list[Change]:
        """Process an event of the watcher of `scope`; return the changes."""
        match event:
            case Requested():
                return []
            case Restarted():
                self._relist.begin(scope, (key for key, entry in self._entries.items() if entry.scope == scope))
                return []
            case Applied(obj):
                return self._applied(scope, self._kept(obj))
            case Deleted(obj):
                return self._gone([key_of(obj)])
            case Synced():
                return self._gone(self._relist.end(scope))

    def _applied(self, scope: str, obj: Object) -> list[Change]:
        key = key_of(obj)
        self._relist.saw(key)
        held = self._entries.get(key)
        if held is not None:
            held.scope = scope
            if held.summary.resource_version == metadata(obj).get("resourceVersion") and held.summary.uid == uid_of(
                obj
            ):
                return []
        new, text = _condense(obj)
        initial = self._relist.is_initial(scope)
        if held is None:
            key = ObjectKey(sys.intern(key.namespace), key.name)
            self._entries[key] = _Entry(new, text, scope)
            return [Change(key, None, new, initial)]
        fields = _changed_fields(held, new, obj)
        old, held.summary, held.text = held.summary, new, text
        return [Change(key, old, new, initial, fields)]

    def _gone(self, keys: Iterable[ObjectKey]) -> list[Change]:
        entries = [(key, self._entries.pop(key)) for key in keys if key in self._entries]
        return [Change(key, entry.summary, None, initial=False) for key, entry in entries]


def _changed_fields(held: _Entry, new: Summary, obj: Object) -> tuple[str, ...]:
    """Compare the contents if they can differ. Most changes are of status alone and need no parsing."""
    old = held.summary
    if old.uid != new.uid or (old.generation == new.generation and old.content_digest == new.content_digest):
        return ()
    return changed_fields(orjson.loads(held.text), obj)


def _condense(obj: Object) -> tuple[Summary, bytes]:
    """Return the summary of an object and the text to cache."""
    meta = {name: value for name, value in metadata(obj).items() if name != "managedFields"}
    trimmed = {**obj, "metadata": meta}
    generation = meta.get("generation")
    annotations = {name: value for name, value in annotations_of(obj).items() if name != LAST_RUN}
    text = orjson.dumps(trimmed)
    summary = Summary(
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        generation=generation,
        deleting=is_deleting(obj),
        paused=is_paused(obj),
        finalizers=tuple(map(sys.intern, finalizers_of(obj))),
        annotations_digest=short_digest(annotations),
        content_digest=_content_digest(trimmed, meta, annotations) if generation is None else b"",
        created=created_at(obj),
        marks={name: str(value) for name, value in annotations.items() if name.startswith(PREFIX)} or _NO_MARKS,
        result=last_result(obj),
        excess=decode.excess(text),
    )
    # A copy, since what orjson returns keeps its working buffer: 8 KiB for each small object.
    return summary, bytes(memoryview(text))


def _content_digest(trimmed: Object, meta: Object, annotations: dict[str, str]) -> bytes:
    """Digest the parts that a client can change."""
    relevant = {name: value for name, value in meta.items() if name != "resourceVersion"}
    return short_digest({**trimmed, "metadata": {**relevant, "annotations": annotations}})
