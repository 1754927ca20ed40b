"""Writes conditions through the status subresource, and retries conflicts with other writers.

Guarantees: no write is lost unless the object is gone. A write that fails is kept, and repeated without a worker. If
the API server refuses a write, the operator repeats it with backoff, and at once if the object changes. The kind's
schema, an admission webhook or rule, or the operator's rights can be the reason. This is logged once, and runs
continue. A refusal can depend on the object. It affects other objects of the namespace only if several of them are
refused one after the other, or if a right is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from runner.base import log
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.core.kube.meaning import Follow, Request, follow
from runner.core.status import kstatus
from runner.core.status.conditions import ignored
from runner.core.status.kept import SEVERAL, Kept, KeptWrites
from runner.core.status.patch import dropped_fields, patch, without, without_health
from runner.core.status.report import OBSERVED, OwnStatus, StatusReport
from runner.values.backoff import JitteredBackoff
from runner.values.errors import PASSING, ApiError, ForbiddenError, LeaseLostError, NotFoundError
from runner.values.lease_guard import Leadership, LeaseGuard
from runner.values.objects import GVK, Object, ObjectKey, key_of, uid_of, version_of

_MAX_DELAY = 5.0
_BETWEEN_CONFLICTS = (0.005, 0.5)
"""First and longest seconds: another client may write the object all the time."""
_MOST_CONFLICTS = 5
"""Conflicts in a row, without a change of the status, until they count as a refusal."""
_STARTING = 3
"""Refusals before a right counts as missing: an API server that has just started refuses everything for a moment."""
_WITHOUT_HEALTH = 3600.0
"""Seconds without the kstatus conditions of a kind: an administrator may repair what refuses them."""
_OUTAGE = "outage"
_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy")
"""Beginnings of the messages of admission, which can refuse with any status code, also 403."""


class StatusWriter:
    """Writes the conditions of one kind's objects."""

    def __init__(
        self,
        client: Client,
        gvk: GVK,
        leadership: Leadership,
        on_refusal: Callable[[Object, str], None],
        own: OwnStatus,
        *,
        enabled: bool,
        health: bool,
    ) -> None:
        """`on_refusal` receives each object whose status is refused, with the reason. `health`: whether the kstatus
        conditions are written too.
        """  # noqa: D205 - one list
        self._on_refusal = on_refusal
        self._own = own
        self._client = client
        self._gvk = gvk
        self._leadership = leadership
        self._log = log.get(__name__, gvk=str(gvk))
        self._cannot = not enabled
        self._health = health
        self._pruned: frozenset[str] = frozenset()
        self._kept = KeptWrites()
        self._outage = JitteredBackoff(0.2, _MAX_DELAY)
        self._unhealthy: set[str] = set()
        """Uids of objects for which the API server refuses the kstatus conditions."""
        self._healthy_from = 0.0
        """When these conditions are tried again, after refusals of several objects."""
        self._logged = log.Once()

    async def write(
        self, resource: ApiResource, obj: Object, report: StatusReport, guard: LeaseGuard, *, keeps: bool = True
    ) -> Object:
        """Apply a change to the status of `obj`; return the object as it is known then.

        A change that the API server refuses is kept, see `follow`. So is one that an outage prevents, if `keeps`.

        Raises:
            LeaseLostError: another replica may lead.
            ApiError, ApiUnavailableError: an outage, unless `keeps`.
        """
        kept = self._kept.of(obj)
        if self._kept.waits(obj, asyncio.get_running_loop().time()):
            self._kept.keep(resource, obj, report)
            return obj
        try:
            if kept is None:
                return await self._write(resource, obj, report, guard)
            return await self._repeat(self._kept.keep(resource, obj, report), guard)
        except PASSING as error:
            if not keeps:
                raise
            if self._logged.is_new(_OUTAGE):
                self._log.warning("Cannot write the status; retrying", error=str(error), **key_of(obj)._asdict())
            if self._kept.of(obj) is None:
                self._kept.keep(resource, obj, report)
            return obj

    async def follow(self) -> None:
        """Repeat failed writes when they are due, until canceled."""
        while True:
            due = self._kept.next()
            self._kept.added.clear()
            seconds = None if due is None else due[1] - asyncio.get_running_loop().time()
            if due is None or (seconds is not None and seconds > 0):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._kept.added.wait()
                continue
            with self._leadership.hold() as guard:
                await self._repeat_alone(due[0], guard)

    async def drain(self) -> None:
        """Repeat the writes that an outage prevented until they succeed. `follow` has ended.

        One guard for all: between two guards, the Lease would be released.
        """
        if self._kept.unrefused() is not None:
            with self._leadership.hold(ends=True) as guard:
                while (kept := self._kept.unrefused()) is not None:
                    await self._repeat_alone(kept, guard)

    def forget(self, key: ObjectKey) -> None:
        """Drop the failed write of an object that is gone, or of a former term as the leader."""
        self._kept.forget(key)

    async def _repeat_alone(self, kept: Kept, guard: LeaseGuard | None) -> None:
        try:
            if guard is not None and not self._gives_up(kept.resource):
                async with guard.guard():
                    await self._repeat(kept, guard)
                self._outage.reset()
                return
        except PASSING:  # `write` has logged it
            kept.due = asyncio.get_running_loop().time()
            await asyncio.sleep(self._outage.next())
            return
        except LeaseLostError as error:
            self._log.info("Lost the leader lease; the status of an object is not written", why=str(error))
        self._kept.drop(kept.obj)

    async def _repeat(self, kept: Kept, guard: LeaseGuard) -> Object:
        report, kept.is_busy = kept.report, True
        try:
            return await self._write(kept.resource, kept.obj, report, guard)
        finally:
            kept.is_busy = False
            if kept.report is not report and self._kept.of(kept.obj) is None:
                self._kept.keep(kept.resource, kept.obj, kept.report)  # a change came meanwhile

    async def _write(self, resource: ApiResource, obj: Object, report: StatusReport, guard: LeaseGuard) -> Object:
        backoff, conflicts, again = JitteredBackoff(*_BETWEEN_CONFLICTS), 0, True
        while again and not self._gives_up(resource):
            guard.check()
            obj, again = await self._attempt(resource, obj, report, backoff, conflicts)
            conflicts += 1
        return obj

    async def _attempt(
        self, resource: ApiResource, seen: Object, report: StatusReport, backoff: JitteredBackoff, conflicts: int
    ) -> tuple[Object, bool]:
        """Write once; return the object as it is now, and whether another attempt is needed.

        The patch applies to one version of the object, so the wait after a conflict comes before the read.
        """
        wanted = report if self._writes_health(seen) else without_health(seen, report, self._own)
        holdable = without(wanted, self._pruned)
        operations = patch(seen, holdable, self._own, time.time())
        if operations is None:
            self._kept.drop(seen)
            return seen, False
        key = key_of(seen)
        if (odd := ignored(seen)) and self._logged.is_new(odd):
            self._log.warning("Replacing parts of the status that another client wrote", why=odd, **key._asdict())
        try:
            written = await self._client.patch(
                resource, key, operations, content_type=PatchType.JSON, subresource="status"
            )
        except ApiError as error:
            if isinstance(error, PASSING):
                raise
            is_refused = follow(Request.STATUS, error) is Follow.KEEP
            await asyncio.sleep(backoff.next())
            if not is_refused and conflicts < _MOST_CONFLICTS:
                fresh = await self._fresh(resource, seen)
                if fresh is None:
                    self._kept.drop(seen)
                return fresh or seen, fresh is not None
            return await self._compare(resource, seen, report, error, is_refused=is_refused)
        if uid_of(seen) in self._unhealthy and self._logged.is_new():
            self._log.warning(
                "The API server refuses the kstatus conditions of the object; omitting them", **key._asdict()
            )
        was_away = self._logged.reset(_OUTAGE)
        if self._kept.written(seen, asyncio.get_running_loop().time()) or was_away:
            self._log.info("Status is written again", **key._asdict())
        self._note_loss(written, holdable)
        return written, False

    async def _compare(
        self, resource: ApiResource, seen: Object, report: StatusReport, error: ApiError, *, is_refused: bool
    ) -> tuple[Object, bool]:
        """Read the object after a refusal or a conflict; return as `_attempt` does."""
        fresh = await self._fresh(resource, seen)
        if fresh is None:
            self._kept.drop(seen)
            return seen, False
        if fresh.get("status") != seen.get("status") or (not is_refused and version_of(fresh) != version_of(seen)):
            return fresh, True
        if is_refused and report.health and self._writes_health(seen):
            self._note_unhealthy(seen)
            return fresh, True
        kept = self._kept.of(seen)
        if kept is None or not kept.is_busy:
            kept = self._kept.keep(resource, fresh, report)
        self._note_refused(kept, error)
        return fresh, False

    async def _fresh(self, resource: ApiResource, seen: Object) -> Object | None:
        """Read the object again; None if it is gone, or if another object has its name."""
        try:
            fresh = await self._client.get(resource, key_of(seen))
        except NotFoundError:
            return None
        except ApiError as error:
            if isinstance(error, PASSING):
                raise
            return seen
        return fresh if uid_of(fresh) == uid_of(seen) else None

    def _gives_up(self, resource: ApiResource) -> bool:
        if not self._cannot and "status" not in resource.subresources:
            self._stop("Status is not written: the kind has no status subresource; add `subresources: {status: {}}`")
        return self._cannot

    def _stop(self, message: str) -> None:
        if not self._cannot:
            self._log.warning(message)
        self._cannot = True

    def _note_refused(self, kept: Kept, error: ApiError) -> None:
        """Log each distinct refusal of an object, and the first pause of a namespace."""
        obj, why = kept.obj, str(error)
        lacks_right = isinstance(error, ForbiddenError) and not any(text in why for text in _ADMISSION)
        pauses = self._kept.refused(kept, asyncio.get_running_loop().time(), lacks_right=lacks_right)
        self._unhealthy.discard(uid_of(obj))  # not only these conditions are refused
        if lacks_right:
            if pauses == _STARTING:
                namespace = key_of(obj).namespace
                self._log.warning(
                    "Status is not written: the operator may not patch it", error=why, namespace=namespace
                )
            if pauses == _STARTING or (pauses > _STARTING and kept.why != why):
                self._on_refusal(obj, f"The API server refuses the {Request.STATUS.value}: {why}")
        elif kept.why != why:
            self._log.warning(
                "Status of the object is not written: the API server refuses it; retrying with backoff",
                error=why,
                **key_of(obj)._asdict(),
            )
            self._on_refusal(obj, f"The API server refuses the {Request.STATUS.value}: {why}")
        if pauses == 1 and not lacks_right:
            self._log.warning(
                "Status of the kind is not written: the API server refuses that of several objects. "
                "Check the schema of the status and admission webhooks; the operator retries with backoff",
                error=why,
                namespace=key_of(obj).namespace,
            )
        kept.why = why

    def _writes_health(self, obj: Object) -> bool:
        is_time = asyncio.get_running_loop().time() >= self._healthy_from
        return self._health and is_time and uid_of(obj) not in self._unhealthy

    def _note_unhealthy(self, obj: Object) -> None:
        """Omit the kstatus conditions of an object; after several objects those of the kind, for some time."""
        self._unhealthy.add(uid_of(obj))
        if len(self._unhealthy) >= SEVERAL:
            self._unhealthy.clear()
            self._healthy_from = asyncio.get_running_loop().time() + _WITHOUT_HEALTH
            self._log_without_health(tried_again_after_seconds=round(_WITHOUT_HEALTH))

    def _log_without_health(self, **more: int) -> None:
        parts = [*kstatus.TYPES, f"status.{OBSERVED}"]
        self._log.warning("The kind's schema refuses a part of the status, which is omitted", fields=parts, **more)

    def _note_loss(self, written: Object, report: StatusReport) -> None:
        """Log once which fields the schema drops; stop writing if it drops all conditions."""
        lost = dropped_fields(written, report, self._own)
        if not lost:
            return
        hint = "add these fields to the CRD's schema, or x-kubernetes-preserve-unknown-fields: true below status"
        if "status.conditions" in lost:
            self._stop(f"Status is not written: the kind's schema drops our conditions; {hint}")
            return
        if self._pruned >= frozenset(lost):
            return
        self._pruned |= frozenset(lost)
        if self._health and "status.conditions[].reason" in lost:
            self._health = False  # only reasons distinguish our conditions from a role's
            self._log_without_health()
        self._log.warning("The kind's schema drops part of our conditions", fields=lost, hint=hint)
