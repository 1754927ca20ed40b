"""Writes of statuses that failed, until they are repeated.

Rule: a refusal counts for what was refused. A missing right, or the refusal of several objects, pauses the writes of
one namespace.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from runner.base import log
from runner.core.kube.discovery import ApiResource
from runner.core.status.report import StatusReport
from runner.values.backoff import Backoff
from runner.values.objects import Object, ObjectKey, key_of, metadata, uid_of

SEVERAL = 5
"""Different objects that are refused one after the other until all writes in their namespace pause."""
_PAUSE = Backoff(1.0, cap=600.0)
_MOST_KEPT = 10_000
"""Maximum number of objects whose failed writes are kept."""

_log = log.get(__name__)


@dataclass(slots=True)
class Kept:
    """A write of one object that failed, merged with later ones."""

    resource: ApiResource
    obj: Object
    report: StatusReport
    refusals: int = 0
    due: float = 0.0
    why: str = ""
    """Message of the last refusal."""
    is_busy: bool = False
    """Whether the write is being repeated."""


@dataclass(slots=True)
class Breaker:
    """Pauses the writes of one namespace after several refusals there. A write that succeeds ends it."""

    consecutive: set[str] = field(default_factory=set)
    """Uids of different objects that were refused."""
    refusals: int = 0
    """Refusals that paused the namespace, in a row."""
    until: float = 0.0

    def refused(self, uid: str, now: float, *, lacks_right: bool) -> int:
        """Record a refusal. A missing right concerns all objects of the namespace.

        Return the number of refusals in a row that paused the namespace; 0 if this one does not.
        """
        if len(self.consecutive) < SEVERAL:
            self.consecutive.add(uid)
        if not lacks_right and len(self.consecutive) < SEVERAL:
            return 0
        self.until = now + _PAUSE.after(self.refusals)
        self.refusals += 1
        return self.refusals


class KeptWrites:
    """Failed writes of one kind. After refusals of several objects of a namespace, one write after another is repeated
    there.
    """  # noqa: D205 - one sentence

    def __init__(self) -> None:
        self.added = asyncio.Event()
        self._objects: OrderedDict[str, Kept] = OrderedDict()
        self._breakers: defaultdict[str, Breaker] = defaultdict(Breaker)
        """By namespace."""
        self._logged = log.Once()

    def of(self, obj: Object) -> Kept | None:
        """Return the kept write of an object."""
        return self._objects.get(uid_of(obj))

    def waits(self, obj: Object, now: float) -> bool:
        """Return True if the status of an object is not written now."""
        kept = self.of(obj)
        if kept is not None and kept.is_busy:
            return True
        is_same = kept is not None and metadata(kept.obj).get("generation") == metadata(obj).get("generation")
        return now < self._until(obj) or (kept is not None and is_same and now < kept.due)

    def keep(self, resource: ApiResource, obj: Object, report: StatusReport) -> Kept:
        """Keep a write, merged with the one that is kept already."""
        uid = uid_of(obj)
        kept = self._objects.get(uid)
        if kept is None:
            kept = self._objects[uid] = Kept(resource, obj, report)
            if len(self._objects) > _MOST_KEPT:
                _, dropped = self._objects.popitem(last=False)
                if self._logged.is_new():
                    _log.warning(
                        "Too many failed status writes are kept; the oldest are dropped, until the next run",
                        most=_MOST_KEPT,
                        **key_of(dropped.obj)._asdict(),
                    )
        kept.resource, kept.obj, kept.report = resource, obj, kept.report.joined(report)
        self.added.set()
        return kept

    def refused(self, kept: Kept, now: float, *, lacks_right: bool) -> int:
        """Record a refusal; see `Breaker.refused`."""
        kept.due = now + _PAUSE.after(kept.refusals)
        kept.refusals += 1
        return self._breakers[key_of(kept.obj).namespace].refused(uid_of(kept.obj), now, lacks_right=lacks_right)

    def written(self, obj: Object, now: float) -> bool:
        """Record a write that succeeded. Return whether the object or its namespace was refused before."""
        kept, namespace = self._objects.pop(uid_of(obj), None), key_of(obj).namespace
        breaker = self._breakers.pop(namespace, None)
        was_paused = breaker is not None and breaker.refusals > 0
        if was_paused:
            for other in self._objects.values():
                if key_of(other.obj).namespace == namespace:
                    other.due = now
        self.added.set()
        return was_paused or (kept is not None and kept.refusals > 0)

    def drop(self, obj: Object) -> None:
        """Drop the kept write of an object that is gone."""
        self._objects.pop(uid_of(obj), None)

    def forget(self, key: ObjectKey) -> None:
        """Drop the kept write of an object that is gone, or of a former term as the leader."""
        for uid in [uid for uid, kept in self._objects.items() if key_of(kept.obj) == key]:
            del self._objects[uid]

    def next(self) -> tuple[Kept, float] | None:
        """Return the write to repeat next, and when; None if there is none."""
        due = ((kept, max(kept.due, self._until(kept.obj))) for kept in self._idle())
        return min(due, key=itemgetter(1), default=None)

    def unrefused(self) -> Kept | None:
        """Return a write that no refusal delays; None if there is none."""
        return min((kept for kept in self._idle() if not kept.refusals), key=attrgetter("due"), default=None)

    def _until(self, obj: Object) -> float:
        """Return the end of the pause in the object's namespace."""
        breaker = self._breakers.get(key_of(obj).namespace)
        return breaker.until if breaker is not None else 0.0

    def _idle(self) -> Iterator[Kept]:
        return (kept for kept in self._objects.values() if not kept.is_busy)
