"""Writes conditions through the status subresource, and retries conflicts with other writers.

Guarantees: a write succeeds unless the object is gone, or the kind's schema or the operator's rights do not allow it.
The latter two are logged once per kind, and runs continue.
"""

from __future__ import annotations

import asyncio
import time

from runner import log
from runner.errors import PASSING, ConflictError, ForbiddenError, InvalidError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import GVK, Object, key_of, uid_of
from runner.replicas.lease_guard import LeaseGuard
from runner.status import kstatus
from runner.status import report as status
from runner.status.report import StatusReport
from runner.watches.policy import JitteredBackoff

_MAX_DELAY = 5.0
_REFUSALS = 5
"""Refusals before a right counts as missing: an API server that has just started refuses everything for a moment."""


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

    async def write(self, resource: ApiResource, obj: Object, report: StatusReport, guard: LeaseGuard) -> None:
        """Apply a change to the status of `obj`. Outages are retried, so that no run's result is lost.

        Raises:
            LeaseLostError: another replica may own the object.
        """
        conflict, outage = JitteredBackoff(0.005, _MAX_DELAY), JitteredBackoff(0.2, _MAX_DELAY)
        refusals = 0
        seen: Object | None = obj
        while seen is not None and not self._gives_up(resource):
            guard.check()
            backoff = conflict
            try:
                seen = await self._attempt(resource, seen, report)
            except PASSING as error:
                backoff = outage
                self._log.warning("Cannot write the status; retrying", error=str(error), **key_of(obj)._asdict())
            except ForbiddenError as error:
                backoff = outage
                refusals += 1
                if self._forbidden or refusals == _REFUSALS:
                    self._note_refusal(error)
                    return
            if seen is not None:
                await asyncio.sleep(backoff.next())

    async def _attempt(self, resource: ApiResource, seen: Object, report: StatusReport) -> Object | None:
        """Write once; return the object for the next attempt, or None if none is needed."""
        holdable = status.without(report if self._health else status.without_health(seen, report), self._pruned)
        patch = status.patch(seen, holdable, time.time())
        if patch is None:
            return None
        key = key_of(seen)
        try:
            written = await self._client.patch(resource, key, patch, content_type=PatchType.JSON, subresource="status")
        except NotFoundError:
            return None
        except (InvalidError, ConflictError) as error:
            fresh = await self._fresh(resource, seen)
            if fresh is not None and fresh.get("status") == seen.get("status"):
                if self._health and report.health:
                    self._do_without_health()
                    return fresh
                self._stop("Status is not written: the kind's schema refuses our conditions", error)
                return None
            return fresh
        if self._forbidden:
            self._forbidden = False
            self._log.info("Status is written again")
        self._note_loss(written, holdable)
        return None

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
