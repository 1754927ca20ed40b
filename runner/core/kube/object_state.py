"""Digests of a dependent's state, the comparison of two states, and the fields in which they differ. Pure.

An `ObjectState` contains digests, never content. For an object that triggered its owner recently (a suspect) it has a
digest per field, so that the next change can name the fields. Annotations that only writers of the status subresource
manage count as status, for example the revision that the Deployment controller writes. `managedFields` identifies them
(https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management).

Of a status, times, messages, probes, usage and counters such as `observedGeneration` mean nothing. All other fields
count: phases, conditions, numbers of ready replicas, addresses, names of volumes, and fields without a known meaning.
It also counts if the controller observes the latest spec. `health` decides whether a rollout is in progress.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import orjson

from runner.core.kube import health
from runner.core.kube.health import Health, HealthState
from runner.core.watches.policy import StatusTrigger
from runner.values.digests import short_digest
from runner.values.objects import (
    GVK,
    Object,
    ObjectRef,
    annotations_of,
    finalizers_of,
    is_deleting,
    mapping,
    metadata,
    references_of,
    uid_of,
)

_STATUS_DEPTH = 16
_LARGEST_STATUS = 64 << 10
"""Bytes of a status, all of which counts above this size: to look for its parts would take up to a second."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NOISE = re.compile(
    r"(?i:probe|heartbeat|metrics|utilization|^(messages?|used|usage|attempts|retries|restarts)$"
    r"|(collision|reconcile|restart|retry)_?counts?$|^terminating(replicas)?$|^uncountedTerminatedPods$)"
    r"|(Time|Timestamp|Generation|ResourceVersion)$|(^|_)(time|timestamp|generation|resource_version)$"
)
"""Names of fields without meaning."""
_READY = ("readyReplicas", "numberReady")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """Digested status of an object."""

    every: bytes
    """Digest of the whole status."""
    meaning: bytes
    """Digest of the part that means something."""
    is_rolling: bool
    """True while a rollout is in progress."""
    ready: int
    """Number of ready replicas."""
    generation: int
    health: Health = health.UNREAD
    rolled_out: int | None = None
    """Generation of the last rollout that was complete, as far as it is known."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], gvk: GVK | None = None, *, uses_generation: bool) -> ObjectStatus:
        """Digest the status of an object. `gvk` is needed for items of a list, which do not contain it.

        `uses_generation` is True if the generation follows the spec. Otherwise each write of the status raises it.
        """
        status, now = mapping(obj.get("status")), health.health(obj, gvk, uses_generation=uses_generation)
        return cls(
            every=short_digest(obj.get("status")),
            meaning=short_digest([uses_generation and health.is_behind(obj), meaningful(obj.get("status"))]),
            is_rolling=now.state is HealthState.IN_PROGRESS or (now.state is HealthState.UNKNOWN and not status),
            ready=max(health.number(status.get(name)) for name in _READY),
            generation=health.number(metadata(obj).get("generation")),
            health=now,
        )

    def after(self, old: ObjectStatus | None) -> ObjectStatus:
        """Return this status as the successor of another one."""
        before = old.rolled_out if old is not None else None
        return replace(self, rolled_out=before if self.is_rolling else self.generation)

    def is_progress(self, old: ObjectStatus | None) -> bool:
        """Return True for a step of a rollout. A complete rollout and the loss of a replica are none."""
        if not self.is_rolling:
            return False
        had_all = old is not None and self.rolled_out == self.generation
        return not had_all or (old is not None and old.is_rolling and self.ready >= old.ready)

    def part(self, trigger: StatusTrigger) -> bytes:
        """Return the digest of the part that counts."""
        return {"off": b"", "auto": self.meaning, "all": self.every}[trigger]


UNREAD = ObjectStatus(b"?", b"?", is_rolling=False, ready=0, generation=0)
"""Status of an object that changed before it was read for the first time. It differs from each status that is read."""


def succeeding(status: ObjectStatus | None, old: ObjectStatus | None, *, is_same: bool) -> ObjectStatus | None:
    """Return the status after `old`; if only metadata was read, the old one. `is_same`: the version has not changed."""
    if status is not None:
        return status.after(old)
    return UNREAD if old is None and not is_same else old


def meaningful(status: Any) -> Any:
    """Return the part of a status that means something to an owner, or None. Conditions are sorted by type."""
    return status if len(orjson.dumps(status)) > _LARGEST_STATUS else _meaningful(status, _STATUS_DEPTH)


def _meaningful(status: Any, depth: int) -> Any:
    if depth and isinstance(status, Mapping):
        parts = {name: _meaningful(value, depth - 1) for name, value in status.items() if not _is_noise(name, value)}
        return {name: part for name, part in parts.items() if part is not None} or None
    if depth and isinstance(status, list):
        items = [_meaningful(item, depth - 1) for item in status]
        typed = all(isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in items)
        return sorted(items, key=lambda item: str(item["type"])) if items and typed else items or None
    return status


def _is_noise(name: str, value: Any) -> bool:
    return bool(_NOISE.search(name) or (isinstance(value, str) and _TIME.match(value)))


MOST = 20
"""Maximum number of fields; with more, the last entry is "and more"."""

_DEPTH = 6
_DEEPEST = 12
_MOST_LEAVES = 1000
_field_digest = partial(hashlib.blake2b, digest_size=8)
_LONGEST_NAME = 256
"""Characters of a field's name in a path. Otherwise a key of a megabyte would be in the path of each field below it."""
_NOT_CONTENT = frozenset({"apiVersion", "kind", "metadata", "status"})


def changed_fields(old: Object, new: Object) -> tuple[str, ...]:
    """Return the fields that were added, removed or changed, such as `spec.size`; a list is one field.

    `metadata` and `status` are excluded.
    """
    paths: list[str] = []
    for name in sorted((old.keys() | new.keys()) - _NOT_CONTENT):
        for path in _differences(old.get(name), new.get(name), name, _DEPTH):
            if len(paths) == MOST:
                return (*paths, "and more")
            paths.append(path)
    return tuple(paths)


def _differences(old: Any, new: Any, path: str, depth: int) -> Iterator[str]:
    if old == new:
        return
    if depth and isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(name), new.get(name), f"{path}.{_short(name)}", depth - 1)
    else:
        yield path


def fingerprint(content: Mapping[str, Any]) -> dict[str, bytes]:
    """Digest each leaf field by path, such as `spec.list[0].name`; of a huge object, the first ones."""
    leaves = islice(_leaves(content, "", _DEEPEST), _MOST_LEAVES)
    return {path: _field_digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).digest() for path, value in leaves}


def differing(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the fields in which two fingerprints differ."""
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{_short(name)}" if path else _short(name), depth - 1)
    elif depth and isinstance(value, list) and value:
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}[{number}]", depth - 1)
    else:
        yield path, value


def _short(name: object) -> str:
    """Return a field's name; the end of a long one is replaced by a digest."""
    text = str(name)
    if len(text) <= _LONGEST_NAME:
        return text
    return f"{text[:_LONGEST_NAME]}…{_field_digest(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


_GRACEFUL = {"foregroundDeletion", "orphan"}
"""Finalizers of the garbage collector, which removes them itself."""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ObjectState:
    """Digested state of a dependent."""

    uid: str
    version: str
    """The resourceVersion."""
    generation: int | None
    deleting: bool
    held: bool
    """True if a finalizer of a controller delays the deletion."""
    labels: bytes
    annotations: bytes
    finalizers: bytes
    owners: bytes
    content: bytes | None
    """Digest without metadata and status; None if only metadata was read."""
    status: ObjectStatus | None
    """None if it was never read. The status of a state with metadata only is the last one that was read."""
    by: str
    """Field manager of the last write with a time, status excluded; empty if unknown."""
    targets: tuple[ObjectRef, ...]
    fields: Mapping[str, bytes] | None = None
    """Digest per field, for suspects."""
    status_fields: Mapping[str, bytes] | None = None
    """The same for the fields of the status that mean something."""
    untimed: tuple[str, ...] = ()
    """Field managers whose writes have no time; the API server adds none for the subresource `scale`."""
    written: str = ""
    """Time of the write of `by`; empty if each field manager has a time."""

    @classmethod
    def of(
        cls,
        obj: Mapping[str, Any],
        targets: tuple[ObjectRef, ...],
        *,
        whole: bool,
        suspect: bool = False,
        uses_generation: bool = True,
    ) -> ObjectState:
        """Digest an object. `whole` is False for metadata only; `suspect` adds a digest per field.

        `uses_generation` is True if the generation follows the spec.
        """
        meta = metadata(obj)
        finalizers = sorted(set(finalizers_of(obj)))
        transient = _written_with_status(meta)
        writes = [entry for entry in meta.get("managedFields") or () if entry.get("subresource") != "status"]
        untimed = tuple(sys.intern(_manager(entry)) for entry in writes if not entry.get("time"))
        return cls(
            uid=uid_of(obj),
            version=str(meta.get("resourceVersion") or ""),
            generation=meta.get("generation"),
            deleting=is_deleting(obj),
            held=bool(set(finalizers) - _GRACEFUL),
            labels=short_digest(meta.get("labels")),
            annotations=short_digest({k: v for k, v in annotations_of(obj).items() if k not in transient}),
            finalizers=short_digest(finalizers),
            owners=short_digest(references_of(obj)),
            content=short_digest({k: v for k, v in obj.items() if k not in {"metadata", "status"}}) if whole else None,
            status=ObjectStatus.of(obj, uses_generation=uses_generation) if whole else None,
            by=_last_manager(writes),
            targets=targets,
            fields=_fields(obj, meta, transient) if whole and suspect else None,
            status_fields=fingerprint({"status": meaningful(obj.get("status"))}) if whole and suspect else None,
            untimed=untimed,
            written=_last_time(writes) if untimed else "",
        )

    def following(self, old: ObjectState | None) -> ObjectState:
        """Return this state as the successor of another one, whose status it has until it is read.

        Metadata without a relevant change leaves the content as it was.
        """
        if old is None or old.uid != self.uid:
            return replace(self, status=succeeding(self.status, None, is_same=True))
        status = succeeding(self.status, old.status, is_same=old.version == self.version)
        if self.status is not None or difference(old, self, trigger="off"):
            return replace(self, status=status)
        return replace(self, status=status, content=old.content, fields=old.fields, status_fields=old.status_fields)

    def traits(self, *, trigger: StatusTrigger, uses_generation: bool) -> list[object] | None:
        """Return the relevant parts as JSON; None if a part is unknown."""
        is_enough = uses_generation and self.generation is not None
        content = str(self.generation) if is_enough else self.content
        if content is None or (trigger != "off" and (self.status is None or self.status is UNREAD)):
            return None
        status = self.status.part(trigger) if self.status is not None else b""
        digests = (self.labels, self.annotations, self.finalizers, self.owners, status)
        spelt = content if isinstance(content, str) else content.hex()
        return [self.uid, self.deleting, spelt, *(digest.hex() for digest in digests)]


def difference(old: ObjectState, new: ObjectState, *, trigger: StatusTrigger) -> str:
    """Return the change between two states; empty if it is not relevant. The status counts only with `all`."""
    if old.uid != new.uid:
        return "was recreated"
    if new.deleting:
        # A deletion without finalizers is reported when it has ended; one with finalizers may need an action.
        return "is being deleted" if new.held and not old.deleting else ""
    changed = _changed_parts(old, new, trigger=trigger)
    return f"changed: {', '.join(changed)}" if changed else ""


def _changed_parts(old: ObjectState, new: ObjectState, *, trigger: StatusTrigger) -> list[str]:
    metadata_parts = ("labels", "annotations", "finalizers", "owners")
    changed = [name for name in metadata_parts if getattr(old, name) != getattr(new, name)]
    if old.content is not None and new.content is not None:
        changed += ["content"] if old.content != new.content else []
    elif old.generation != new.generation:
        changed.append("spec")
    elif new.generation is None and old.version != new.version:
        changed.append("possibly content")
    is_known = old.status is not None and new.status is not None
    if trigger == "all" and is_known and _part(old, trigger) != _part(new, trigger):
        changed.append("status")
    return changed


def changed(old: ObjectState, new: ObjectState, *, trigger: StatusTrigger) -> tuple[str, ...]:
    """Return the changed fields of an object that was not recreated, or the changed parts if fields are unknown."""
    if old.uid != new.uid or new.deleting:
        return ()
    if old.fields is None or new.fields is None:
        return tuple(_changed_parts(old, new, trigger=trigger))
    return tuple(path for path in differing(old.fields, new.fields) if trigger == "all" or not _is_status(path))


def status_changed(old: ObjectState, new: ObjectState) -> tuple[str, ...]:
    """Return the fields of the status that changed and mean something, or `status` if they are unknown."""
    if old.uid != new.uid or new.deleting or _part(old, "auto") == _part(new, "auto"):
        return ()
    if old.status_fields is None or new.status_fields is None:
        return ("status",)
    return differing(old.status_fields, new.status_fields) or ("status",)


def _part(state: ObjectState, trigger: StatusTrigger) -> bytes | None:
    return state.status.part(trigger) if state.status is not None else None


def _is_status(path: str) -> bool:
    return path == "status" or path.startswith(("status.", "status["))


def sentence(what: str, fields: tuple[str, ...]) -> str:
    """Replace the changed parts by the fields, if these are known."""
    if not fields:
        return what
    return f"changed: {', '.join(fields[:_MOST_NAMED])}" + (" and more" if len(fields) > _MOST_NAMED else "")


def _written_with_status(meta: Mapping[str, Any]) -> set[str]:
    """Return the annotations that only writers of the status subresource manage."""
    by_status: set[str] = set()
    by_others: set[str] = set()
    for entry in meta.get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        names = {name[2:] for name in fields.get("f:annotations") or () if name.startswith("f:")}
        (by_status if entry.get("subresource") == "status" else by_others).update(names)
    return by_status - by_others


def writer(old: ObjectState, new: ObjectState) -> str:
    """Return the field manager that changed `old` into `new`; empty if unknown.

    A write without a time is the last one only if its field manager is new.
    """
    gained = set(new.untimed).difference(old.untimed)
    if gained:
        return gained.pop() if len(gained) == 1 else ""
    return "" if new.untimed and new.written == old.written else new.by


def _last_manager(writes: Iterable[Mapping[str, Any]]) -> str:
    """Return the last field manager; empty if several wrote in the same second, the resolution of the times."""
    last = _last_time(writes)
    managers = {_manager(entry) for entry in writes if last and entry.get("time") == last}
    return sys.intern(managers.pop()) if len(managers) == 1 else ""


def _last_time(writes: Iterable[Mapping[str, Any]]) -> str:
    return max((str(entry.get("time") or "") for entry in writes), default="")


def _manager(entry: Mapping[str, Any]) -> str:
    return str(entry.get("manager") or "")


def _fields(obj: Mapping[str, Any], meta: Mapping[str, Any], transient: set[str]) -> dict[str, bytes]:
    """Digest each field that is relevant to an owner."""
    relevant = {
        "labels": meta.get("labels"),
        "annotations": {name: value for name, value in annotations_of(obj).items() if name not in transient},
        "finalizers": sorted(set(finalizers_of(obj))),
        "ownerReferences": references_of(obj),
    }
    content = {name: value for name, value in obj.items() if name not in {"apiVersion", "kind", "metadata"}}
    return fingerprint({**content, "metadata": {name: value for name, value in relevant.items() if value}})
