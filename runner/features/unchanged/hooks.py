"""Skips runs of unchanged objects: `skipUnchanged` of a watch.

Owns the record of each object's last run, in an annotation. A run at the operator's start or for a period is skipped
if the last run succeeded and its inputs did not change. Inputs are the object, the content, owned objects and other
objects that the run read. In doubt the run takes place. A check costs one request per object or list that the object
does not own. The operator reads the paths in a record with its own rights, so that no other client may name them: a
record has a seal.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from runner.base import log
from runner.core.content.files import ContentDigest
from runner.core.dependents.store import ENTRY
from runner.core.dependents.watching import Dependents
from runner.core.engine.job import Outcome
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import StateError, StateStore
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.decisions import Done, RequeueAfter
from runner.core.reconcile.hooks import Addition, FinishedRun, Hooks, Skip
from runner.core.reconcile.run_access import OWNED_AT_END
from runner.core.status.conditions import find
from runner.features.unchanged.requests import READ_SET, UNSERVED, ReadSet
from runner.values.digests import digest_of, digest_of_answer
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import LAST_RUN, Object, ObjectKey, ObjectRef, annotations_of, conditions_of, key_of, uid_of
from runner.values.slots import Slot

MOST_READS = 32
"""Limit of objects and lists that a run read, without owned objects."""
_INPUTS: Slot[RunInputs | None] = Slot("inputs of a run", None)
"""Slot of an attempt: digests of the run's inputs; None if the run is not recorded."""
NOTHING_NEW = "nothing has changed since the last run, which succeeded"
_KEY = "last-run-key"
"""Entry of the key of seals, beside the kinds of dependents: each replica and the next process have it, without another
right.
"""
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Digests of a run's inputs as it begins."""

    obj: str
    content: str
    named: str | None
    """References of the object; None if their state is not known."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """Record of a run that succeeded, and whether its inputs have changed since.

    It is an annotation of the object, so that it is as durable as the object and every replica can read it. An object
    without a valid record runs. A failed run removes the record.
    """

    obj: str
    """Digest of the fields of the object that a role can depend on."""
    content: str
    """Digest of the executed content."""
    owned: str
    """Digest of the owned objects."""
    reads: Mapping[str, str]
    """Digest of each other path that the run read."""
    due: float | None
    """Time of the next run that the role requested, in seconds since the epoch."""
    named: str = ""
    """Digest of the object's references; empty if it has none."""
    seal: str = ""
    """See `Seal`; empty if the run read nothing."""

    @classmethod
    def of(cls, obj: Object) -> LastRun | None:
        """Read the record of an object; None if it is missing or invalid."""
        try:
            record = orjson.loads(annotations_of(obj)[LAST_RUN])
            return cls(
                str(record["object"]),
                str(record["content"]),
                str(record["owned"]),
                {str(path): str(digest) for path, digest in record.get("reads", {}).items()},
                min(2.0**53, max(0.0, float(record["due"]))) if "due" in record else None,  # also of nan and inf
                str(record.get("named", "")),
                str(record.get("seal", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            return None

    def written(self) -> str:
        """Return the annotation's value."""
        fields: dict[str, Any] = {"object": self.obj, "content": self.content, "owned": self.owned}
        if self.reads:
            fields["reads"] = dict(self.reads)
        if self.due is not None:
            fields["due"] = round(self.due)
        if self.named:
            fields["named"] = self.named
        if self.seal:
            fields["seal"] = self.seal
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    def outdated(self, inputs: RunInputs, now: float) -> str:
        """Return why a run is due, without requests to the cluster; empty if none is due."""
        if self.obj != inputs.obj:
            return "the object has changed"
        if self.content != inputs.content:
            return "the role, playbook or settings have changed"
        if inputs.named is None:
            return "the state of the object's references is not known"
        if self.named != inputs.named:
            return "a reference of the object has changed"
        if self.due is not None and self.due <= now:
            return "the last run requested another run by now"
        return ""


class Seal:
    """Makes seals. Without a stored key, they are valid in this process only."""

    def __init__(self, state: StateStore) -> None:
        """`state` is `store.storage` of the operator."""
        self._state = state
        self._key = ""

    async def of(self, uid: str, text: str) -> str:
        """Return the seal of a record of an object. Raises ApiError and ApiUnavailableError for the moment."""
        if not self._key:
            fresh = secrets.token_hex(32)
            try:
                if not (stored := await self._stored()):
                    await self._state.put(ENTRY, _KEY, fresh)
                    stored = await self._stored()  # another replica can have been faster
            except StateError as error:
                stored = ""
                _log.warning("After a restart, each object whose role reads unowned objects runs", error=str(error))
            self._key = stored or fresh
        return hmac.new(self._key.encode(), f"{uid} {text}".encode(), hashlib.sha256).hexdigest()

    async def _stored(self) -> str:
        entry = await self._state.read(ENTRY)
        return entry.data.get(_KEY, "") if entry is not None else ""


@dataclass(frozen=True, slots=True)
class UnchangedCheck:
    """Result of a check."""

    why: str
    """Why the object must run; empty if the run can be skipped."""
    due: float | None = None
    """Time of the next run that the last one requested, in seconds since the epoch."""


class RunSkipper(Hooks):
    """Skips runs of one watch's objects."""

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        owned: Dependents,
        inputs: Callable[[ObjectKey], str | None],
        executed: ContentDigest,
        seal: Seal,
        must_run: Callable[[Attempt], Awaitable[bool]],
    ) -> None:
        """`inputs` is `Hooks.inputs` of all hooks. `must_run` returns whether another feature needs the run of an
        unchanged object.
        """  # noqa: D205 - one list
        self._scope = scope
        self._gvk = scope.watch.gvk
        self._client = client
        self._owned = owned
        self._inputs = inputs
        self._executed = executed
        self._seal = seal
        self._must_run = must_run
        text = "Runs skipped because nothing changed"
        self._skipped = scope.metrics.counter("ansible_operator_skipped_runs", text, ["GVK", "reason"])
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(self._gvk))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Skip the run of an unchanged object; otherwise add the reason and the inputs of the run."""
        if attempt.executes.finalizing or attempt.resumed is not None or attempt.overrides.mode != "apply":
            return attempt
        reason = attempt.request.reason
        if reason.is_skippable and attempt.executes.add_first is None:
            checked = await self.check(attempt.obj, time.time())
            if checked.why:
                attempt = attempt.because(checked.why)
            elif not await self._must_run(attempt):
                self._skipped.labels(str(self._gvk), reason.value).inc()
                self._log.info("Run skipped", reason=reason.value, why=NOTHING_NEW, **attempt.key._asdict())
                if checked.due is not None:
                    return Skip(RequeueAfter(checked.due - time.time()))
                return Skip(Done(self._scope.terms(attempt).resync_after))
        read_set = ReadSet()
        more = attempt.more.having(READ_SET, read_set).having(OWNED_AT_END, read_set.ended)
        more = more.having(_INPUTS, await self.basis(attempt.obj))
        return replace(attempt, more=more, sinks=(*attempt.sinks, read_set.event))

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Record a run that succeeded; remove the record of one that failed."""
        result, obj = run.result, self._scope.latest(attempt)
        read_set, inputs = attempt.more.get(READ_SET), attempt.more.get(_INPUTS)
        if inputs is None or read_set is None:
            return Addition()
        if result.outcome is Outcome.SUCCEEDED:
            due = time.time() + result.requeue_after if result.requeue_after is not None else None
            await self.succeeded(attempt.resource, obj, inputs, read_set, due)
        elif result.outcome is not Outcome.CANCELED:
            await self.failed(attempt.resource, obj)
        return Addition()

    async def basis(self, obj: Object) -> RunInputs:
        """Return the digests of a run's inputs."""
        content = await self._executed.digest()
        return RunInputs(digest_of(obj), content, self._inputs(key_of(obj)))

    async def check(self, obj: Object, now: float) -> UnchangedCheck:
        """Check whether an object must run. `now` is in seconds since the epoch."""
        last = LastRun.of(obj)
        if last is None:
            return UnchangedCheck("no successful run is on record")
        conditions = conditions_of(obj)
        if (find(conditions, "Failure") or {}).get("status") == "True":
            return UnchangedCheck("the last run failed")
        if (find(conditions, "Successful") or {}).get("reason") == "Running":  # also of an operator that was killed
            return UnchangedCheck("the last run did not finish")
        why = last.outdated(await self.basis(obj), now) or await self._changed_reads(obj, last)
        return UnchangedCheck(why, last.due)

    async def _sealed(self, obj: Object, record: LastRun) -> LastRun:
        """Add the seal to a record with reads."""
        text = replace(record, seal="").written()
        return replace(record, seal=await self._seal.of(uid_of(obj), text) if record.reads else "")

    async def _changed_reads(self, obj: Object, last: LastRun) -> str:
        if await self._sealed(obj, last) != last:
            return "another client wrote the record of the last run"
        owned = await self._owned.owned(self._gvk, key_of(obj))
        if owned is None:
            why = self._owned.unknown(self._gvk, key_of(obj).namespace)
            return f"the owned objects are not known{f': {why}' if why else ''}"
        if owned != last.owned:
            return "an owned object has changed"
        for path, digest in last.reads.items():
            if await self._read(path) != digest:
                return f"an object that the last run read has changed: {path}"
        return ""

    async def _read(self, path: str) -> str:
        try:
            return digest_of_answer(orjson.loads(await self._client.read(path)))
        except NotFoundError:
            return digest_of_answer(None)
        except KindNotFoundError:
            return UNSERVED
        except (ApiError, orjson.JSONDecodeError):
            return ""

    async def succeeded(
        self, resource: ApiResource, obj: Object, basis: RunInputs, read_set: ReadSet, due: float | None
    ) -> None:
        """Record a successful run. `due`: time of the next run that its role requested, in seconds since the epoch."""
        key = key_of(obj)
        own = {((self._gvk.group, resource.plural), key), *self._owned.owned_keys(ObjectRef(self._gvk, key))}
        reads = {path: seen.digest for path, seen in read_set.reads.items() if (seen.kind, seen.key) not in own}
        why = read_set.unseen
        if len(reads) > MOST_READS:
            why = f"it read more than {MOST_READS} objects and lists that its object does not own"
        elif basis.named is None:
            why = why or "the state of the object's references was not known"
        elif not read_set.owned:
            unknown = self._owned.unknown(self._gvk, key.namespace)
            changed = "another client changed an owned object during the run, or its state was not known at the end"
            why = why or (f"the owned objects are not known: {unknown}" if unknown else changed)
        if why:
            self._log.info("The next periodic run is not skipped", why=why, **key._asdict())
            await self._write(resource, obj, None)
            return
        named = basis.named or ""
        await self._write(resource, obj, LastRun(basis.obj, basis.content, read_set.owned, reads, due, named))

    async def failed(self, resource: ApiResource, obj: Object) -> None:
        """Remove the record, so that the next run takes place."""
        await self._write(resource, obj, None)

    async def _write(self, resource: ApiResource, obj: Object, record: LastRun | None) -> None:
        try:
            text = (await self._sealed(obj, record)).written() if record is not None else None
            if annotations_of(obj).get(LAST_RUN) == text:
                return
            body = {"metadata": {"uid": uid_of(obj), "annotations": {LAST_RUN: text}}}
            await self._client.patch(resource, key_of(obj), body, content_type=PatchType.MERGE)
        except ForbiddenError as error:
            if self._logged.is_new(key_of(obj).namespace):
                rule = f"verb patch on {resource.qualified}"
                self._log.warning(
                    "Cannot record runs, so no run is skipped; grant the right", error=str(error), needs=rule
                )
        except (ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot record a run", error=str(error), **key_of(obj)._asdict())
