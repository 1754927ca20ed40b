"""Prune: records which objects the runs of one watch create, and reports or deletes those that are no longer used.

Nothing is deleted that the record does not contain (decision 32). A failure of the storage stops no run: creations that
cannot be recorded are counted, logged, and reported in the condition.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from runner import log
from runner.config import paths
from runner.controller.attempt import Attempt, WatchScope
from runner.controller.decisions import Done, RequeueAfter
from runner.controller.features import Addition, Feature, FinishedRun, Skip
from runner.engine.coverage import Coverage
from runner.engine.job import Outcome, RunResult
from runner.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    KindNotFoundError,
    NotFoundError,
)
from runner.kube import forbidden
from runner.kube.client import Client
from runner.kube.discovery import ApiResource, Discovery
from runner.objects import Object, ObjectKey, ObjectRef, is_deleting, key_of, metadata, uid_of
from runner.ownership import Owner
from runner.prune import record as records
from runner.prune.record import MOST_OBJECTS, Basis, CreatedObject, CreationRecord
from runner.prune.run_objects import RunObjects
from runner.prune.store import RecordStore, StoreError
from runner.replicas.lease_guard import LeaseGuard
from runner.status import report
from runner.status.report import PruneReport, StatusReport
from runner.unchanged.content_digest import ContentDigest
from runner.unchanged.last_run import digest_of
from runner.workqueue.request import RunReason

CONFIRM_AFTER = 15.0
"""Seconds until the run that confirms that objects are unused. A short outage must not affect both runs."""
_AT_ONCE = 100
"""Entries of a nearly full record that are checked after one run."""
_NEARLY_FULL = MOST_OBJECTS * 4 // 5
"""Objects in a record from which on those that no longer exist are removed."""
_SELECTING = (
    "--tags",
    "--skip-tags",
    "--start-at-task",
    "--limit",
    "--check",
    "--syntax-check",
    "--step",
    "--list-tasks",
    "--list-tags",
    "--list-hosts",
)
_SELECTING_SHORT = frozenset("tlC")


class DeletionObserver(Protocol):
    """Observer of deletions, which must not start a run of the owner. See `AccessObserver`."""

    def began(self, owner: Owner) -> None:
        """Handle the begin of deletions for `owner`."""
        ...

    def ended(self, owner: Owner) -> bool:
        """Handle the end of the deletions."""
        ...

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """Handle the deletion of an object; `answer` is the object, or a Status about it."""
        ...


@dataclass(slots=True)
class _State:
    """Record of one object, as it is in memory and in the storage."""

    uid: str
    record: CreationRecord
    stored: str | None
    unused: int = 0
    """Number of unused objects that the last run reported."""


@dataclass(slots=True)
class _Findings:
    """Result of the examination of unused objects."""

    unused: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of the prune after a run."""

    report: PruneReport
    confirm: bool = False
    """Whether another run must confirm that objects are unused."""


class Pruner(Feature):
    """Prunes the objects of one watch's runs."""

    def __init__(
        self,
        scope: WatchScope,
        client: Client,
        discovery: Discovery,
        observer: DeletionObserver,
        store: RecordStore,
        executed: ContentDigest,
        account: str,
    ) -> None:
        """`account`: service account of the watch's runs, `namespace/name`; empty: the operator's own."""
        self._scope = scope
        self._policy = scope.watch.prune
        self._client = client
        self._discovery = discovery
        self._observer = observer
        self._store = store
        self._executed = executed
        self._user = f"system:serviceaccount:{account.replace('/', ':')}" if account else ""
        self._states: dict[ObjectKey, _State] = {}
        self._former: dict[ObjectKey, str] = {}
        """UIDs of objects whose records were dropped from memory."""
        self._problems: dict[ObjectKey, str] = {}
        """Why creations of an object's runs are not recorded."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        self._selects = tasks_are_selected(executed.ansible_args, executed.environ, executed.cwd)
        if self._selects:
            self._log.warning("No run counts for prune, because only some tasks are executed", why=self._selects)
        scope.registry.subscribe(self._forget)
        scope.metrics.add_prune(scope.watch.gvk, self._count_unused)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Record the objects that the run creates."""
        return replace(attempt, objects=await self.begin(attempt))

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Report or delete what is unused, and request the run that confirms it."""
        is_approved = attempt.approved is not None
        pruned = await self.end(attempt, attempt.objects, run.result, may_delete=not is_approved)
        if pruned.report.deleted:
            self._scope.about(attempt.obj).pruned(pruned.report.deleted)
        confirms = pruned.confirm and not is_approved and isinstance(run.decision.result, Done)
        return Addition(
            StatusReport(report.prunable(attempt.obj, pruned.report)),
            RequeueAfter(CONFIRM_AFTER, RunReason.PRUNE) if confirms else None,
        )

    async def begin(self, attempt: Attempt) -> RunObjects | None:
        """Return the recorder of a run; None if the run is not recorded.

        Raises:
            ApiError, ApiUnavailableError: the record cannot be read for the moment.
        """
        if attempt.plan.finalizing:
            return None
        state = await self._load(attempt)
        if state is None:
            return None
        generation = metadata(attempt.obj).get("generation")
        basis = Basis(
            str(generation) if generation is not None else digest_of(attempt.obj), await self._executed.digest()
        )
        owner = ObjectRef.of(self._scope.watch.gvk, attempt.obj)
        return RunObjects(
            state.record,
            basis,
            partial(self._store_intent, state, owner, attempt.guard),
            partial(self._note_unrecorded, attempt.key, "full", f"the record is full ({MOST_OBJECTS} objects)"),
            time.time,
        )

    async def is_pending(self, attempt: Attempt) -> bool:
        """Return True if a run must confirm that objects are unused."""
        state = None if attempt.plan.finalizing else await self._load(attempt)
        return state is not None and state.record.is_pending()

    async def end(
        self, attempt: Attempt, objects: RunObjects | None, run: RunResult, *, may_delete: bool = True
    ) -> Pruned:
        """Update the record after a run, and report or delete what is unused. An approved run may not delete.

        Raises:
            LeaseLostError: another replica may have the object.
        """
        key = attempt.key
        state = self._states.get(key)
        if objects is None or state is None:
            return Pruned(PruneReport(unrecorded=self._problems.get(key, "")))
        owner = Owner(ObjectRef.of(self._scope.watch.gvk, attempt.obj), namespaced=attempt.resource.namespaced)
        await self._check(state.record, owner, objects)
        coverage = objects.coverage.result()
        basis = replace(objects.basis, omitted=coverage.omitting)
        self._note_handlers(state.record, objects, coverage)
        counts = self._counts(run, coverage)
        kinds = partial(records.may_prune, self._policy)
        state.record.ended(basis, objects.used, counts=counts, may_prune=kinds)
        findings = _Findings()
        if counts and self._is_current(attempt) and state.record.unused():
            self._observer.began(owner)
            try:
                findings = await self._examine(state, owner, basis, attempt.guard, may_delete=may_delete)
            finally:
                self._observer.ended(owner)
        state.unused = len(findings.unused) + len(findings.problems)
        attempt.guard.check()
        await self._save(state, owner.ref, attempt.guard)
        found = PruneReport(
            unused=findings.unused,
            deleted=findings.deleted,
            problems=findings.problems,
            unrecorded=self._problems.get(key, ""),
            counts=counts,
            deletable=may_delete,
        )
        return Pruned(found, confirm=counts and state.record.is_pending())

    async def gone(self, key: ObjectKey) -> None:
        """Remove the record of an object that no longer exists."""
        self._forget(key)
        uid = self._former.pop(key, "")
        if uid:
            await self._remove_if_gone(ObjectRef(self._scope.watch.gvk, key, uid))

    async def sweep(self) -> None:
        """Once the informer is synced, remove the records of objects that no longer exist."""
        informer, gvk = self._scope.informer, self._scope.watch.gvk
        await informer.synced.wait()
        try:
            for owner in await self._store.owners():
                watched = not informer.namespaces or owner.key.namespace in {"", *informer.namespaces}
                cached = informer.get(owner.key)
                if (owner.gvk.group, owner.gvk.kind) != (gvk.group, gvk.kind) or not watched:
                    continue
                if cached is None or uid_of(cached) != owner.uid:
                    await self._remove_if_gone(replace(owner, gvk=gvk))
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._log.warning("Cannot remove the records of objects that no longer exist", error=str(error))

    async def _remove_if_gone(self, owner: ObjectRef) -> None:
        try:
            resource = await self._discovery.find(owner.gvk)
            if uid_of(await self._client.get(resource, owner.key)) == owner.uid:
                return
        except NotFoundError:
            pass
        except (ApiError, ApiUnavailableError, KindNotFoundError) as error:
            self._log.info("Cannot check whether a record is still needed", error=str(error), **owner.key._asdict())
            return
        try:
            await self._store.remove(owner.uid)
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._log.info("Cannot remove the record of a deleted object", error=str(error), **owner.key._asdict())

    # The record.

    async def _load(self, attempt: Attempt) -> _State | None:
        key, uid = attempt.key, uid_of(attempt.obj)
        state = self._states.get(key)
        if state is not None and state.uid == uid:
            return state
        if self._former.get(key, uid) != uid or state is not None:
            await self.gone(key)
        self._former.pop(key, None)
        try:
            text = await self._store.load(uid)
        except StoreError as error:
            self._note_problem(key, str(error))
            return None
        self._problems.pop(key, None)
        record = CreationRecord()
        if text:
            try:
                record = CreationRecord.parse(text)
            except ValueError as error:
                self._log.warning(
                    "The record of created objects is invalid: the objects in it are not pruned",
                    error=str(error),
                    **key._asdict(),
                )
        state = self._states[key] = _State(uid, record, text)
        return state

    async def _store_intent(self, state: _State, owner: ObjectRef, guard: LeaseGuard) -> None:
        if guard.is_valid() and not await self._save(state, owner, guard):
            self._scope.metrics.unrecorded.labels(str(self._scope.watch.gvk), "storage").inc()

    async def _save(self, state: _State, owner: ObjectRef, guard: LeaseGuard) -> bool:
        """Write the record if it has changed; return False, and log, if this is not possible."""
        text = state.record.spell()
        if text == state.stored or (state.stored is None and not state.record.objects):
            return True
        try:
            try:
                await self._store.save(owner, text)
            except ConflictError:
                guard.check()
                await self._store.load(owner.uid)
                await self._store.save(owner, text)
        except (StoreError, ApiError, ApiUnavailableError) as error:
            self._note_problem(owner.key, str(error))
            return False
        state.stored = text
        self._problems.pop(owner.key, None)
        return True

    def _note_unrecorded(self, key: ObjectKey, reason: str, problem: str) -> None:
        self._scope.metrics.unrecorded.labels(str(self._scope.watch.gvk), reason).inc()
        self._note_problem(key, problem)

    def _note_problem(self, key: ObjectKey, problem: str) -> None:
        self._problems[key] = problem
        if self._logged.is_new((key, problem)):
            self._log.warning(
                "Cannot record the objects that runs create: unrecorded objects are not pruned",
                problem=problem,
                **key._asdict(),
            )

    def _forget(self, key: ObjectKey) -> None:
        state = self._states.pop(key, None)
        if state is not None:
            self._former[key] = state.uid
        self._problems.pop(key, None)

    def _count_unused(self) -> int:
        return sum(state.unused for state in self._states.values())

    # After a run.

    async def _check(self, record: CreationRecord, owner: Owner, objects: RunObjects) -> None:
        """Read the objects of unconfirmed creations, and those that may no longer exist."""
        stale: Iterable[CreatedObject] = record.stale(objects.used) if len(record.objects) >= _NEARLY_FULL else ()
        doubtful = [entry for ident in objects.doubtful if (entry := record.objects.get(ident)) is not None]
        checked = {entry.id: entry for entry in (*record.intents(), *doubtful, *list(stale)[:_AT_ONCE])}
        for entry in checked.values():
            try:
                obj = await self._read(entry)
            except (ApiError, ApiUnavailableError, KindNotFoundError) as error:
                self._log.info("Cannot check a created object; retrying after the next run", error=str(error))
                continue
            if entry.intended:
                record.resolve(entry, obj, owner)
            elif obj is None or uid_of(obj) != entry.uid:
                record.drop(entry)

    def _note_handlers(self, record: CreationRecord, objects: RunObjects, coverage: Coverage) -> None:
        """Exempt the objects that handlers created."""
        for ident, at in objects.created.items():
            entry = record.objects.get(ident)
            if entry is not None and any(begin <= at <= end for begin, end in coverage.handlers):
                entry.exempt = True

    def _counts(self, run: RunResult, coverage: Coverage) -> bool:
        """Return whether a run is complete."""
        is_done = run.outcome is Outcome.SUCCEEDED and run.requeue_after is None
        return is_done and not coverage.failed and not self._selects

    def _is_current(self, attempt: Attempt) -> bool:
        """Return False if the object was deleted meanwhile."""
        cached = self._scope.informer.get(attempt.key)
        return cached is not None and uid_of(cached) == uid_of(attempt.obj) and not is_deleting(cached)

    async def _examine(
        self, state: _State, owner: Owner, basis: Basis, guard: LeaseGuard, *, may_delete: bool
    ) -> _Findings:
        record, findings = state.record, _Findings()
        deletes = self._policy.then == "delete" and may_delete
        for entry in record.unused():
            guard.check()
            try:
                if await self._prune(entry, record, owner, basis, guard if deletes else None):
                    found = findings.deleted if deletes else findings.unused
                    found.append(str(entry))
            except ForbiddenError as error:
                right = forbidden.read(str(error))
                why = forbidden.sentences([right])[0] if right else str(error)
                findings.problems.append(f"{entry}: {why}")
            except NotFoundError:
                record.drop(entry)
            except KindNotFoundError as error:
                if self._logged.is_new(entry.gvk):
                    self._log.info("Cannot examine unused objects of a kind", error=str(error))
            except ApiError as error:
                findings.problems.append(f"{entry}: {error}")
            except ApiUnavailableError as error:
                self._log.info("Cannot examine unused objects; retrying after the next run", error=str(error))
                break
        return findings

    async def _prune(
        self, entry: CreatedObject, record: CreationRecord, owner: Owner, basis: Basis, guard: LeaseGuard | None
    ) -> bool:
        """Delete an unused object, unless `guard` is None; return whether it was or would be deleted."""
        obj = await self._read(entry)
        if obj is None or uid_of(obj) != entry.uid or is_deleting(obj):
            record.drop(entry)
            return False
        if records.reason_to_keep(obj, owner):
            entry.basis, entry.unused = basis, 0  # examined again after the next change
            return False
        if guard is not None:
            guard.check()
            await self._delete(entry, obj, owner)
            record.drop(entry)
        return True

    async def _read(self, entry: CreatedObject) -> Object | None:
        """Read an object with the rights of the watch's runs; None if it does not exist."""
        resource = await self._discovery.find(entry.gvk)
        try:
            return await self._client.request("GET", resource.path(*entry.key), user=self._user)
        except NotFoundError:
            return None

    async def _delete(self, entry: CreatedObject, obj: Object, owner: Owner) -> None:
        resource = await self._discovery.find(entry.gvk)
        version = str(metadata(obj).get("resourceVersion") or "")
        await self._client.delete(resource, key_of(obj), uid=entry.uid, version=version, user=self._user)
        self._observer.deleted(owner, resource, obj)
        self._scope.metrics.pruned.labels(str(self._scope.watch.gvk)).inc()
        self._log.info("Deleted an unused object", object=str(entry), uid=entry.uid, **owner.ref.key._asdict())


def tasks_are_selected(ansible_args: str, environ: Mapping[str, str], cwd: Path) -> str:
    """Return which setting makes Ansible execute only some tasks or hosts; empty if none does."""
    try:
        arguments: Sequence[str] = shlex.split(ansible_args)
    except ValueError:
        arguments = ansible_args.split()
    for argument in arguments:
        name = argument.partition("=")[0]
        is_long = len(name) > len("--") and any(option.startswith(name) for option in _SELECTING)
        is_short = name.startswith("-") and not name.startswith("--") and not _SELECTING_SHORT.isdisjoint(name)
        if is_long or is_short:
            return f"--ansible-args contains {argument}"
    for name in ("ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS"):
        if environ.get(name):
            return f"environment variable {name}"
    return _selecting_config(environ, cwd)


def _selecting_config(environ: Mapping[str, str], cwd: Path) -> str:
    config = next((path for path in paths.ansible_configs(environ, cwd) if path.is_file()), None)
    parser = ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        parser.read_string(config.read_text(encoding="utf-8", errors="replace") if config else "")
    except (ConfigParserError, OSError):
        return ""  # Ansible reports an invalid file itself
    if any(parser.get("tags", name, fallback="") for name in ("run", "skip")):
        return f"section [tags] of {config}"
    return ""
