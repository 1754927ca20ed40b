"""Record of the objects outside their owner's namespace that runs of the owner wrote. Pure.

In the owner's namespace an annotation that names an owner counts always. In other namespaces every user who may write
an object could name any owner. There the annotation counts only if a run of that owner wrote the object, which the UID
identifies. The record survives restarts. An object that is older than the record has no entry. For this object it is
enough that a run of the owner reads it by name. The API server sets UIDs and creation times, so no user can forge them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.values.objects import GVK, ObjectRef, metadata

MOST_MARKS = 4096
"""Objects that are recorded for each watch; the oldest entries are dropped."""
_MARK_SIZE = 9


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Record of one watch."""

    since: str
    """Time at which the record began, as in `creationTimestamp`."""
    marks: tuple[str, ...]
    """Digests of owner and UID, the oldest first."""

    def merged(self, other: WriteRecord) -> WriteRecord:
        """Return the record of both; entries of `self` are newer."""
        marks = tuple(dict.fromkeys((*other.marks, *self.marks)))
        return WriteRecord(min(self.since, other.since), marks[-MOST_MARKS:])


RecordsByWatch: TypeAlias = Mapping[GVK, WriteRecord]


class WrittenObjects:
    """Records of all watches."""

    def __init__(self, now: str) -> None:
        """`now` is the current time as in `creationTimestamp`."""
        self._now = now
        self._since: dict[GVK, str] = {}
        self._marks: dict[GVK, dict[str, None]] = {}

    def load(self, stored: RecordsByWatch) -> None:
        """Add stored records."""
        for gvk, record in stored.items():
            merged = self._record(gvk).merged(record)
            self._since[gvk], self._marks[gvk] = merged.since, dict.fromkeys(merged.marks)

    def records(self, watches: Iterable[GVK]) -> RecordsByWatch:
        """Return the records of some watches; a watch without entries has a time too."""
        return {gvk: self._record(gvk) for gvk in watches}

    def add(self, owner: ObjectRef, uid: str) -> bool:
        """Note that a run of `owner` wrote an object; return True if this is new."""
        marks = self._marks.setdefault(owner.gvk, {})
        mark = _mark(owner, uid)
        if mark in marks:
            return False
        marks[mark] = None
        if len(marks) > MOST_MARKS:
            del marks[next(iter(marks))]
        return True

    def is_full(self, gvk: GVK) -> bool:
        """Return True if the next entry of this watch replaces the oldest one."""
        return len(self._marks.get(gvk, ())) >= MOST_MARKS

    def has(self, owner: ObjectRef, uid: str) -> bool:
        """Return True if a run of `owner` wrote the object."""
        return _mark(owner, uid) in self._marks.get(owner.gvk, {})

    def discard(self, owner: ObjectRef, uid: str) -> None:
        """Remove an object that was deleted."""
        self._marks.get(owner.gvk, {}).pop(_mark(owner, uid), None)

    def is_older(self, owner: ObjectRef, obj: Mapping[str, Any]) -> bool:
        """Return True if an object was created before the record of its owner's watch began."""
        created = metadata(obj).get("creationTimestamp")
        return isinstance(created, str) and "" < created < self._since.get(owner.gvk, self._now)

    def _record(self, gvk: GVK) -> WriteRecord:
        return WriteRecord(self._since.get(gvk, self._now), tuple(self._marks.get(gvk, ())))


def _mark(owner: ObjectRef, uid: str) -> str:
    text = f"{owner.gvk.group}/{owner.gvk.kind} {owner.key} {uid}"
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=_MARK_SIZE).digest()).decode()
