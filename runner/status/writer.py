"""Writes conditions through the status subresource, and retries conflicts with other writers.

Guarantees: a write succeeds unless the object is gone or the API server refuses the write. The kind's schema, an
admission webhook or rule, or the operator's rights can be the reason. This is logged once, and runs continue.
A refusal can depend on the object, so it affects the writes of other objects only if several objects are refused one
after the other. Refused writes are retried with backoff.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from runner import log
from runner.errors import PASSING, ApiError, ForbiddenError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import GVK, Object, key_of, metadata, uid_of
from runner.replicas.lease_guard import LeaseGuard
from runner.status import kstatus
from runner.status import report as status
from runner.status.report import StatusReport
from runner.watches.policy import Backoff, JitteredBackoff

_MAX_DELAY = 5.0
_REFUSALS = 5
"""Refusals before a right counts as missing: an API server that has just started refuses everything for a moment."""


_SEVERAL = 5
"""Different objects that are refused one after the other until all writes of the kind pause."""
_PAUSE = Backoff(10.0, cap=600.0)
_MOST_OBJECTS = 1000
"""Maximum number of refused objects that are stored."""
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy")
"""Beginnings of the messages of admission, which can refuse with any status code, also 403."""


@dataclass(slots=True)
class _Pause:
    """Refusals since the last write that succeeded, and the pause after them."""

    refusals: int = 0
    until: float = 0.0
    generation: object = None
    """Generation of the refused object: a change ends the pause."""

    def extend(self, now: float) -> None:
        self.until = now + _PAUSE.after(self.refusals)
        self.refusals += 1


class _Refusals:
    """Objects of one kind whose status the API server refuses."""

    def __init__(self) -> None:
        self._objects: OrderedDict[str, _Pause] = OrderedDict()
        self._consecutive: set[str] = set()
        """Uids of different objects that were refused since the last write that succeeded."""
        self._kind = _Pause()

    def pauses(self, obj: Object, now: float) -> bool:
        """Return True if the status of an object is not written now."""
        pause = self._objects.get(uid_of(obj))
        if pause is not None and now < pause.until and pause.generation == metadata(obj).get("generation"):
            return True
        return now < self._kind.until

    def add(self, obj: Object, now: float) -> tuple[bool, bool]:
        """Record a refusal. Return whether it is the first of the object, and the first that pauses the kind."""
        uid = uid_of(obj)
        pause = self._objects.setdefault(uid, _Pause())
        is_first = pause.refusals == 0
        pause.generation = metadata(obj).get("generation")
        pause.extend(now)
        self._objects.move_to_end(uid)
        if len(self._objects) > _MOST_OBJECTS:
            self._objects.popitem(last=False)
        if len(self._consecutive) < _SEVERAL:
            self._consecutive.add(uid)
        if len(self._consecutive) < _SEVERAL:
            return is_first, False
        self._kind.extend(now)
        return is_first, self._kind.refusals == 1

    def end(self, obj: Object) -> bool:
        """Record a write that succeeded. Return whether the object or the kind was refused before."""
        was_refused = self._objects.pop(uid_of(obj), None) is not None or self._kind.refusals > 0
        self._consecutive.clear()
        self._kind = _Pause()
        return was_refused


class StatusWriter:
    """Writes the conditions of one kind's objects."""

    def __init__(self, client: Client, gvk: GVK, *, enabled: bool, health: bool) -> None:
        """`health`: whether the kstatus conditions are written too."""
        self._client = client
        self._log = log.get(__name__, gvk=str(gvk))
        self._cannot = not enabled
        self._health = health
        self._forbidden = False
        self._pruned: frozenset[str] = frozenset()
        self._refusals = _Refusals()
        self._unhealthy: set[str] = set()
        """Uids of objects for which the API server refuses the kstatus conditions."""
        self._logged = log.Once()

    async def write(self, resource: ApiResource, obj: Object, report: StatusReport, guard: LeaseGuard) -> Object:
        """Apply a change to the status of `obj`; return the object as it is known then.

        Outages are retried, so that no run's result is lost.

        Raises:
            LeaseLostError: another replica may own the object.
        """
        conflict, outage = JitteredBackoff(0.005, _MAX_DELAY), JitteredBackoff(0.2, _MAX_DELAY)
        refusals = 0
        if self._refusals.pauses(obj, asyncio.get_running_loop().time()):
            return obj
        again = True
        while again and not self._gives_up(resource):
            guard.check()
            backoff = conflict
            try:
                obj, again = await self._attempt(resource, obj, report)
            except PASSING as error:
                backoff = outage
                self._log.warning("Cannot write the status; retrying", error=str(error), **key_of(obj)._asdict())
            except ForbiddenError as error:
                backoff = outage
                refusals += 1
                if self._forbidden or refusals == _REFUSALS:
                    self._note_refusal(error)
                    return obj
            if again:
                await asyncio.sleep(backoff.next())
        return obj

    async def _attempt(self, resource: ApiResource, seen: Object, report: StatusReport) -> tuple[Object, bool]:
        """Write once; return the object as it is now, and whether another attempt is needed."""
        health = self._health and uid_of(seen) not in self._unhealthy
        holdable = status.without(report if health else status.without_health(seen, report), self._pruned)
        patch = status.patch(seen, holdable, time.time())
        if patch is None:
            return seen, False
        key = key_of(seen)
        try:
            written = await self._client.patch(resource, key, patch, content_type=PatchType.JSON, subresource="status")
        except NotFoundError:
            return seen, False
        except ApiError as error:
            if not _is_refusal(error):
                raise
            return await self._compare(resource, seen, error, has_health=health and bool(report.health))
        if uid_of(seen) in self._unhealthy and self._logged.is_new():
            self._log.warning(
                "The API server refuses the kstatus conditions of the object; omitting them", **key._asdict()
            )
        if self._refusals.end(seen):
            self._log.info("Status is written again", **key._asdict())
        if self._forbidden:
            self._forbidden = False
            self._log.info("Status is written again")
        self._note_loss(written, holdable)
        return written, False

    async def _compare(
        self, resource: ApiResource, seen: Object, error: ApiError, *, has_health: bool
    ) -> tuple[Object, bool]:
        """Read the object after a refusal; return as `_attempt` does."""
        fresh = await self._fresh(resource, seen)
        if fresh is None:
            return seen, False
        if fresh.get("status") != seen.get("status"):
            return fresh, True
        if has_health:
            self._note_unhealthy(seen)
            return fresh, True
        self._note_refused(seen, error)
        return fresh, False

    async def _fresh(self, resource: ApiResource, seen: Object) -> Object | None:
        """Read the object again; None if it is gone, or if another object has its name."""
        try:
            fresh = await self._client.get(resource, key_of(seen))
        except NotFoundError:
            return None
        return fresh if uid_of(fresh) == uid_of(seen) else None

    def _gives_up(self, resource: ApiResource) -> bool:
        if not self._cannot and "status" not in resource.subresources:
            self._stop(
                "Status is not written: the kind has no status subresource; add `subresources: {status: {}}`", None
            )
        return self._cannot

    def _note_refusal(self, error: ForbiddenError) -> None:
        """Log once that a right is missing; later writes are attempted once each, until one is allowed."""
        if not self._forbidden:
            self._forbidden = True
            self._log.warning("Status is not written: the operator may not patch it", error=str(error))

    def _stop(self, message: str, error: Exception | None) -> None:
        if self._cannot:
            return
        self._cannot = True
        self._log.warning(message, error=str(error) if error else None)

    def _note_refused(self, obj: Object, error: ApiError) -> None:
        """Log the first refusal of an object, and the first pause of the kind."""
        is_first, pauses = self._refusals.add(obj, asyncio.get_running_loop().time())
        self._unhealthy.discard(uid_of(obj))  # not only these conditions are refused
        if is_first:
            self._log.warning(
                "Status of the object is not written: the API server refuses it; retrying with backoff",
                error=str(error),
                **key_of(obj)._asdict(),
            )
        if pauses:
            self._log.warning(
                "Status of the kind is not written: the API server refuses that of several objects. "
                "Check the schema of the status and admission webhooks; the operator retries with backoff",
                error=str(error),
            )

    def _note_unhealthy(self, obj: Object) -> None:
        """Omit the kstatus conditions of an object; after several objects those of the kind."""
        self._unhealthy.add(uid_of(obj))
        if len(self._unhealthy) >= _SEVERAL:
            self._unhealthy.clear()
            self._do_without_health()

    def _do_without_health(self) -> None:
        self._health = False
        parts = [*kstatus.TYPES, f"status.{status.OBSERVED}"]
        self._log.warning("The kind's schema refuses a part of the status, which is omitted", fields=parts)

    def _note_loss(self, written: Object, report: StatusReport) -> None:
        """Log once which fields the schema drops; stop writing if it drops all conditions."""
        lost = status.dropped_fields(written, report)
        if not lost:
            return
        hint = "add these fields to the CRD's schema, or x-kubernetes-preserve-unknown-fields: true below status"
        if "status.conditions" in lost:
            self._stop(f"Status is not written: the kind's schema drops our conditions; {hint}", None)
            return
        if self._pruned >= frozenset(lost):
            return
        self._pruned |= frozenset(lost)
        if self._health and "status.conditions[].reason" in lost:
            self._do_without_health()  # only reasons tell our conditions from a role's
        self._log.warning("The kind's schema drops part of our conditions", fields=lost, hint=hint)


def _is_refusal(error: ApiError) -> bool:
    """Return True if the API server refuses the content of a write, or if the object was changed before it."""
    if isinstance(error, ForbiddenError):
        return any(text in str(error) for text in _ADMISSION)
    return _CLIENT_ERROR <= error.status < _SERVER_ERROR and not isinstance(error, PASSING)
