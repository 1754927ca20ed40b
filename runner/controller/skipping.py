"""Skips runs that nothing asks for: `skipUnchanged` of a watch.

Owns: the record of each object's last run, in an annotation, and the comparison with how things are now. A run for the
operator's start or for a period is skipped where the object, what would be executed, what the object owns and what
else the last run saw are all as they were, the last run succeeded, and it asked for none yet. In doubt the run takes
place. Costs no request, but one for each object or list that the last run saw and that its object does not own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import orjson

from runner import log
from runner.controller.attempt import Attempt
from runner.engine.job import Outcome, RunResult
from runner.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import GVK, LAST_RUN, Object, ObjectKey, annotations_of, key_of, uid_of
from runner.status.conditions import conditions_of
from runner.unchanged.content_digest import ContentDigest
from runner.unchanged.last_run import (
    MOST_READS,
    LastRun,
    ReadEntry,
    ReadSet,
    digest_of,
    digest_of_answer,
)
from runner.workqueue.request import Reason

_SKIPPED = frozenset({Reason.PRESENT, Reason.RESYNC})
NOTHING_NEW = "nothing has changed since the last run, which succeeded"


class OwnedObjects(Protocol):
    """Who knows what objects own."""

    async def owned(self, gvk: GVK, key: ObjectKey) -> str | None:
        """Digest what an object owns; None when that is not known."""
        ...

    def owns(self, gvk: GVK, key: ObjectKey, seen: ReadEntry) -> bool:
        """Whether what was seen is watched as the object's own."""
        ...


class ReferencedObjects(Protocol):
    """Who knows what objects name without owning it."""

    def fingerprint(self, gvk: GVK, key: ObjectKey) -> str | None:
        """Digest the state of what an object names; empty where it names nothing, None when that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class UnchangedCheck:
    """What a look at an object came to."""

    why: str
    """Why it has to be run; empty: it has not."""
    due: float | None = None
    """When the last run wants the next one, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Digests of a run's inputs as it begins."""

    obj: str
    content: str
    named: str | None
    """References of the object; None if their state is not known."""


@dataclass(frozen=True, slots=True)
class SkipDecision:
    """Whether a run is skipped."""

    skip: bool = False
    due: float | None = None
    """When the next run is due that a skipped run's predecessor requested, in seconds since the epoch."""
    why: str = ""
    """Why a run that could have been skipped is not."""
    basis: RunInputs | None = None
    """Inputs of a run that takes place; None if it is not recorded."""


class RunSkipper:
    """Of one watch."""

    def __init__(
        self, gvk: GVK, client: Client, owned: OwnedObjects, named: ReferencedObjects, executed: ContentDigest
    ) -> None:
        self._gvk = gvk
        self._client = client
        self._owned = owned
        self._named = named
        self._executed = executed
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(gvk))

    async def decide(self, attempt: Attempt) -> SkipDecision:
        """Decide whether the attempt's run is skipped."""
        if attempt.plan.finalizing:
            return SkipDecision()
        if attempt.request.reason not in _SKIPPED or attempt.plan.add_first is not None:
            return SkipDecision(basis=await self.basis(attempt.obj))
        checked = await self.check(attempt.obj, time.time())
        if checked.why:
            return SkipDecision(why=checked.why, basis=await self.basis(attempt.obj))
        return SkipDecision(skip=True, due=checked.due)

    async def record(self, attempt: Attempt, basis: RunInputs, read_set: ReadSet, run: RunResult) -> None:
        """Record a run that succeeded; remove the record of one that failed. `attempt` has the object as it is now."""
        if run.outcome is Outcome.SUCCEEDED:
            due = time.time() + run.requeue_after if run.requeue_after is not None else None
            await self.succeeded(attempt.resource, attempt.obj, basis, read_set, due)
        elif run.outcome is not Outcome.CANCELED:
            await self.failed(attempt.resource, attempt.obj)

    async def basis(self, obj: Object) -> RunInputs:
        """Note what a run is made of."""
        content = await self._executed.digest()
        return RunInputs(digest_of(obj), content, self._named.fingerprint(self._gvk, key_of(obj)))

    async def check(self, obj: Object, now: float) -> UnchangedCheck:
        """Say whether an object has to be run. `now` is in seconds since the epoch."""
        last = LastRun.of(obj)
        if last is None:
            return UnchangedCheck("no successful run is on record")
        if any(each.get("type") == "Failure" and each.get("status") == "True" for each in conditions_of(obj)):
            return UnchangedCheck("the last run failed")
        basis = await self.basis(obj)
        why = last.outdated(basis.obj, basis.content, basis.named, now) or await self._seen_otherwise(obj, last)
        return UnchangedCheck(why, last.due)

    async def _seen_otherwise(self, obj: Object, last: LastRun) -> str:
        owned = await self._owned.owned(self._gvk, key_of(obj))
        if owned is None:
            return "it is not known what the object owns"
        if owned != last.owned:
            return "something that the object owns has changed"
        for path, digest in last.reads.items():
            if await self._read(path) != digest:
                return f"what the last run saw has changed: {path}"
        return ""

    async def _read(self, path: str) -> str:
        try:
            return digest_of_answer(orjson.loads(await self._client.read(path)))
        except NotFoundError:
            return digest_of_answer(None)
        except (ApiError, orjson.JSONDecodeError):
            return ""

    async def succeeded(
        self, resource: ApiResource, obj: Object, basis: RunInputs, read_set: ReadSet, due: float | None
    ) -> None:
        """Put a successful run on record. `due`: when its role wants the next one, in seconds since the epoch."""
        key = key_of(obj)
        mine = (self._gvk.group, resource.plural, key.namespace, key.name)
        reads = {
            path: seen.digest
            for path, seen in read_set.reads.items()
            if (seen.group, seen.plural, seen.namespace, seen.name) != mine
            and not self._owned.owns(self._gvk, key, seen)
        }
        why = read_set.unseen
        if len(reads) > MOST_READS:
            why = f"it read more than {MOST_READS} objects and lists that its object does not own"
        elif basis.named is None:
            why = why or "it is not known how the object's references were"
        elif not read_set.owned:
            why = why or "somebody changed what the object owns meanwhile"
        if why:
            self._log.info("The next periodic run is not skipped", why=why, **key._asdict())
            await self._write(resource, obj, None)
            return
        named = basis.named or ""
        await self._write(resource, obj, LastRun(basis.obj, basis.content, read_set.owned, reads, due, named).written())

    async def failed(self, resource: ApiResource, obj: Object) -> None:
        """Take the record off: what failed is run again."""
        await self._write(resource, obj, None)

    async def _write(self, resource: ApiResource, obj: Object, text: str | None) -> None:
        if annotations_of(obj).get(LAST_RUN) == text:
            return
        body = {"metadata": {"uid": uid_of(obj), "annotations": {LAST_RUN: text}}}
        try:
            await self._client.patch(resource, key_of(obj), body, content_type=PatchType.MERGE)
        except ForbiddenError as error:
            if self._logged.is_new():
                rule = f"verb patch on {resource.qualified}"
                self._log.warning(
                    "Cannot record runs, so no run is skipped; grant the right", error=str(error), needs=rule
                )
        except (ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot record a run", error=str(error), **key_of(obj)._asdict())
