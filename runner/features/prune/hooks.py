"""Prune: records which objects the runs of one watch create and use, and reports or deletes those that are unused.

Nothing is deleted that the record does not contain, or that another resource of the operator uses (decision 32). If
only other watches have `prune`, the used objects alone are recorded. The first complete run after a start deletes
nothing: another one must confirm it.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import TaskGroup
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from runner.base import log
from runner.base.credentials import auth
from runner.core.content import lookups
from runner.core.content.files import ContentDigest
from runner.core.engine.job import Outcome, RunResult
from runner.core.proxy.handlers.writes import WRITE_HOOK
from runner.core.queue import reasons
from runner.core.queue.reasons import Cause
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.decisions import Done, RequeueAfter
from runner.core.reconcile.feature import Kind, Operator, Part, ProxyParts
from runner.core.reconcile.hooks import Addition, FinishedRun, Hooks, Skip
from runner.core.status.report import StatusReport
from runner.core.watches.watch import IS_REMOTE
from runner.features.prune import record as records
from runner.features.prune.coverage import Coverage, tasks_are_selected
from runner.features.prune.feature import PRUNE
from runner.features.prune.fields import PRUNE_POLICY
from runner.features.prune.record import MOST_OBJECTS, Basis, CreationRecord
from runner.features.prune.records import Examined, PruneDeletion, PruneRecords, RecordState, RecordStore, storage
from runner.features.prune.run_objects import OBSERVER, USES, RunObjects, RunUses
from runner.features.prune.sharing import OperatorUses
from runner.features.prune.status import PruneReport, prunable
from runner.features.prune.uses import UsedObjects
from runner.values.digests import digest_of
from runner.values.errors import ApiError, ApiUnavailableError
from runner.values.objects import ObjectKey, ObjectRef, Owner, first_names, is_deleting, metadata, uid_of

_MOST_NAMED = 5
"""Deleted objects that an Event names."""
CONFIRM_AFTER = 15.0
"""Seconds until the run that confirms that objects are unused. A short outage must not affect both runs."""
_AT_ONCE = 100
"""Entries of a nearly full record that are checked after one run."""
_NEARLY_FULL = MOST_OBJECTS * 4 // 5
"""Objects in a record from which on those that no longer exist are removed."""


class Pruner(Hooks):
    """Prunes the objects of one watch's runs."""

    def __init__(
        self,
        scope: WatchScope,
        executed: ContentDigest,
        uses: OperatorUses,
        records_of: PruneRecords,
        deletion: PruneDeletion,
    ) -> None:
        self._scope = scope
        self._policy = scope.watch.more.get(PRUNE_POLICY)
        self._executed = executed
        self._uses = uses
        self._records = records_of
        self._deletion = deletion
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        self._selects = tasks_are_selected(executed.ansible_args, executed.environ, executed.cwd)
        if self._selects:
            self._log.warning("No run counts for prune, because only some tasks are executed", why=self._selects)
        uses.watch(scope.watch.gvk, scope.informer)
        scope.registry.subscribe(partial(uses.forget, scope.watch.gvk))
        if self._policy.then != "off":
            text = "Objects that runs created and no longer use"
            unused = scope.metrics.gauge("ansible_operator_unused_objects", text, ["GVK"])
            unused.labels(str(scope.watch.gvk)).set_function(records_of.count_unused)

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Record the objects that the run creates."""
        return _recorded(attempt, await self.begin(attempt))

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:
        """Report or delete what is unused, and request the run that confirms it."""
        is_bound = attempt.bounds is not None
        report = await self.end(attempt, attempt.more.get(USES), run.result, may_delete=not is_bound)
        if report.deleted:
            named = first_names(report.deleted, _MOST_NAMED)
            self._scope.about(attempt.obj).record("Normal", "Pruned", "Prune", f"Deleted unused objects: {named}")
        confirms = report.confirm and not is_bound and isinstance(run.decision.result, Done)
        return Addition(
            StatusReport(prunable(attempt.obj, report)),
            RequeueAfter(CONFIRM_AFTER, PRUNE) if confirms else None,
        )

    async def begin(self, attempt: Attempt, *, creates: bool = True) -> RunUses:
        """Return the recorder of a run; without `creates`, of a trial, which creates nothing.

        Raises:
            ApiError, ApiUnavailableError: the record cannot be read for the moment.
        """
        state = await self._load(attempt)
        ref = self._ref(attempt)
        used = UsedObjects(None if self._scope.watch.more.get(IS_REMOTE) else time.time)
        if state is None or self._policy.then == "off" or not creates:
            objects = RunUses(used=used, gate=self._uses.gate)
        else:
            generation = metadata(attempt.obj).get("generation")
            basis = Basis(
                str(generation) if generation is not None else digest_of(attempt.obj), await self._executed.digest()
            )
            objects = RunObjects(
                state.record,
                basis,
                partial(self._records.store_intent, state, ref, attempt.guard),
                partial(self._records.note_full, attempt.key),
                time.time,
                used=used,
                gate=self._uses.gate,
            )
        record = state.record if state is not None else None
        self._uses.began(ref, used, record, is_read=state is not None and state.is_valid)
        return objects

    async def end(
        self, attempt: Attempt, objects: RunUses | None, run: RunResult, *, may_delete: bool = True
    ) -> PruneReport:
        """Update the record after a run, and report or delete what is unused. An approved run may not delete.

        Raises:
            LeaseLostError: another replica may have the object.
        """
        if objects is None:
            return PruneReport()
        coverage = objects.coverage.result()
        hidden = await asyncio.to_thread(_why_hidden, attempt, coverage)
        why, ref = self._why_incomplete(attempt, run) or hidden, self._ref(attempt)
        state = await self._ended(attempt, objects, why or _why_rescued(coverage), coverage)
        if attempt.resumed is not None:
            self._uses.request_run(ref)
        if state is None or not isinstance(objects, RunObjects):
            unrecorded = self._records.problem(attempt.key) if self._policy.then != "off" else ""
            return PruneReport(unrecorded=unrecorded)
        report = PruneReport(counts=not why, deletable=may_delete)
        examined = await self._update(attempt, objects, state, coverage, report)
        is_first = report.counts and not state.has_run
        state.has_run = state.has_run or is_first
        if report.counts and not is_first and self._is_current(attempt):
            await self._deletion.examine(examined)
            if may_delete:
                self._uses.wait(ref, examined.shared)
        state.unused = len(report.unused) + len(report.problems)
        attempt.guard.check()
        await self._records.save(state, ref, attempt.guard)
        report.unrecorded = self._records.problem(attempt.key) or (f"{hidden}." if hidden else "")
        is_pending = state.record.is_pending() or (is_first and bool(state.record.unused()))
        report.confirm = report.counts and is_pending
        return report

    async def must_run(self, attempt: Attempt) -> bool:
        """Return True if a run must confirm that objects are unused, of this resource or of another one.

        At the start, a resource with unused objects runs: the operator does not store for which resources they wait.
        """
        state = await self._load(attempt)
        record = state.record if state is not None else CreationRecord()
        starts = attempt.request.reason is reasons.PRESENT
        is_pending = record.is_pending() or (starts and bool(record.unused()))
        return is_pending or self._uses.is_awaited(self._ref(attempt))

    async def before_trial(self, attempt: Attempt) -> Attempt:
        """Record the objects that a trial uses. Raises ApiError and ApiUnavailableError."""
        return _recorded(attempt, await self.begin(attempt, creates=False))

    async def after_trial(self, attempt: Attempt, result: RunResult, effect: str) -> None:
        """Store the uses of a trial. If a run would have no effect, they are those of the last run."""
        uses = attempt.more.get(USES)
        if uses is None:
            return
        coverage = uses.coverage.result()
        why = self._why_incomplete(attempt, result) or _why_rescued(coverage)
        why = why or await asyncio.to_thread(_why_hidden, attempt, coverage)
        await self._ended(attempt, uses, why or effect, coverage)

    async def gone(self, key: ObjectKey) -> None:
        """Remove the record of an object that no longer exists."""
        await self._records.gone(key)

    async def sweep(self) -> None:
        """Remove the records of objects that no longer exist, and decide again once all objects are known."""
        async with TaskGroup() as group:
            group.create_task(self._records.sweep())
            async for _ in self._scope.informer.renewals():
                self._uses.reconsider()

    async def _load(self, attempt: Attempt) -> RecordState | None:
        return None if attempt.executes.finalizing else await self._records.load(attempt.key, uid_of(attempt.obj))

    async def _ended(self, attempt: Attempt, objects: RunUses, why: str, coverage: Coverage) -> RecordState | None:
        """Note the uses of a run that has ended, and store them; return the record, if there is one."""
        ref, state = self._ref(attempt), self._records.find(attempt.key)
        record = state.record if state is not None else None
        self._uses.ended(ref, objects.used, why=why, coverage=coverage, record=record)
        if state is not None and not isinstance(objects, RunObjects):  # otherwise `end` stores them
            attempt.guard.check()
            await self._records.save(state, ref, attempt.guard)
        return state

    def _ref(self, attempt: Attempt) -> ObjectRef:
        return ObjectRef.of(self._scope.watch.gvk, attempt.obj)

    async def _update(
        self, attempt: Attempt, objects: RunObjects, state: RecordState, coverage: Coverage, report: PruneReport
    ) -> Examined:
        """Update the record after a run; see `CreationRecord.ended`."""
        owner = Owner(self._ref(attempt), namespaced=attempt.resource.namespaced)
        await self._check(state.record, owner, objects)
        basis = replace(objects.basis, omitted=coverage.omitting)
        _note_handlers(state.record, objects, coverage)
        kinds = partial(records.may_prune, self._policy)
        held = state.record.ended(basis, objects.used, coverage, counts=report.counts, may_prune=kinds)
        report.held = [(str(entry), omission.what) for entry, omission in held]
        deletes = self._policy.then == "delete" and report.deletable
        return Examined(state.record, owner, basis, attempt.guard, deletes, report)

    async def _check(self, record: CreationRecord, owner: Owner, objects: RunObjects) -> None:
        """Read the objects of unconfirmed creations, and those that may no longer exist."""
        stale = list(record.stale(objects.used)) if len(record.objects) >= _NEARLY_FULL else []
        possibly_deleted = [
            entry for ident in objects.possibly_deleted if (entry := record.objects.get(ident)) is not None
        ]
        checked = {entry.id: entry for entry in (*record.intents(), *possibly_deleted, *stale[:_AT_ONCE])}
        for entry in checked.values():
            try:
                obj = await self._deletion.read(entry)
            except (ApiError, ApiUnavailableError) as error:
                self._log.info("Cannot check a created object; retrying after the next run", error=str(error))
                continue
            if entry.intended:
                record.resolve(entry, obj, owner)
            elif obj is None or uid_of(obj) != entry.uid:
                record.drop(entry)

    def _why_incomplete(self, attempt: Attempt, run: RunResult) -> str:
        """Return why a run is incomplete; empty if it is complete."""
        if attempt.executes.finalizing:
            return "it is being deleted"
        if run.outcome is not Outcome.SUCCEEDED:
            return f"its last run {run.outcome.value}"
        if run.requeue_after is not None:
            return "its last run requested another one"
        if attempt.resumed is not None:
            return "an earlier operator started its last run"
        return f"only some tasks are executed: {self._selects}" if self._selects else ""

    def _is_current(self, attempt: Attempt) -> bool:
        """Return False if the object was deleted meanwhile."""
        cached = self._scope.informer.get(attempt.key)
        return cached is not None and uid_of(cached) == uid_of(attempt.obj) and not is_deleting(cached)


def _recorded(attempt: Attempt, uses: RunUses) -> Attempt:
    attempt = attempt.having(USES, uses).having(WRITE_HOOK, uses if isinstance(uses, RunObjects) else None)
    return replace(attempt, sinks=(*attempt.sinks, uses.coverage.event))


def _why_hidden(attempt: Attempt, coverage: Coverage) -> str:
    """Return the first lookup or task that hides its failures, as the end of a sentence; empty if there is none."""
    if hiding := sorted(filter(lookups.is_of_hiding_task, coverage.censored)):
        return f"no_log hides whether failed_when hid a failure ({hiding[0]})"
    ignoring = (lookup for lookup in lookups.of_run(attempt.executes.content, coverage.paths) if lookup.ignores_errors)
    first = next(ignoring, None)
    return f"a lookup ignores its errors ({first.place})" if first is not None else ""


def _why_rescued(coverage: Coverage) -> str:
    return f"in its last run, {coverage.rescued.what}" if coverage.rescued is not None else ""


def _note_handlers(record: CreationRecord, objects: RunObjects, coverage: Coverage) -> None:
    """Exempt the objects that handlers created."""
    for ident, at in objects.created.items():
        entry = record.objects.get(ident)
        if entry is not None and any(begin <= at <= end for begin, end in coverage.handlers):
            entry.exempt = True


class SharedUses(Part):
    """Uses of objects by all resources of an operator."""

    uses: OperatorUses
    proxy = ProxyParts(observers=(OBSERVER,))

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Begin without uses."""
        self.uses = OperatorUses(lambda resource, why: operator.wake(resource, Cause.of(PRUNE, (why,))))
        return {}


def of_kind(kind: Kind) -> Pruner:
    """Return the hooks of a kind."""
    scope, operator, uses = kind.scope, kind.operator, kind.operator.part(SharedUses).uses
    client, discovery, account = operator.client, operator.discovery, scope.watch.service_account
    deletion = PruneDeletion(scope, client, discovery, operator.observers, uses, account)
    space = auth.pod_namespace(auth.HostEnvironment.of_process())
    state = storage(client, space, operator.settings.runner_dir)
    return Pruner(scope, kind.executed, uses, PruneRecords(scope, client, discovery, RecordStore(state)), deletion)
