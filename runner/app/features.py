"""Features of the operator, and the order in which the hooks of a kind are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runner.app.rights import REQUIRED_RIGHTS
from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.base.meters import Meters
from runner.base.page import PageSections
from runner.core.kube.client import Selection
from runner.core.queue.request import Cause
from runner.core.reconcile.decisions import OBJECT_CHANGES, RUN_MARK
from runner.core.reconcile.hooks import Hooks
from runner.core.reconcile.kind import Kind
from runner.core.reconcile.own_hooks import Annotations, FinalizerRemoval, Pause, RunReports
from runner.core.reconcile.parts import Part
from runner.core.watches.watch import Watch
from runner.features.hosts.fields import INVENTORY
from runner.features.hosts.run_hosts import RunHosts
from runner.features.loopguard.guard import LoopGuard
from runner.features.loopguard.reports import ContentionReporter
from runner.features.plan import hooks as planning
from runner.features.plan.drift import DRIFT, DriftChecks, DriftSchedule
from runner.features.plan.drift_fields import DRIFT_POLICY
from runner.features.plan.hooks import PlanReconciler
from runner.features.plan.page import LatestPlans
from runner.features.plan.runs import PlanRuns
from runner.features.prune import store as prune_store
from runner.features.prune.fields import PRUNE_POLICY
from runner.features.prune.hooks import PRUNE, Pruner
from runner.features.prune.records import PruneDeletion, PruneRecords
from runner.features.prune.sharing import OperatorUses
from runner.features.references.fields import REFERENCES
from runner.features.references.ignored import IgnoredReferences
from runner.features.references.known import REFERENCE_CHANGES, KnownReferences
from runner.features.references.watching import REFERENCE, References
from runner.features.rights.privileges import OperatorRights
from runner.features.rolemetrics.endpoint import RoleMetrics
from runner.features.rollout.fields import ROLLOUT_POLICY
from runner.features.rollout.hooks import ROLLOUT, Rollout
from runner.features.rollout.page import RolloutTable
from runner.features.rollout.store import RolloutStore
from runner.features.ui.setup import OperatorPage
from runner.features.unchanged.fields import SKIPS
from runner.features.unchanged.hooks import RunSkipper
from runner.values.objects import ObjectRef

REASONS = (REFERENCE, PRUNE, ROLLOUT, DRIFT)
"""Reasons of runs that features define."""
MARKS = (*planning.MARKS, RUN_MARK)
"""Annotations whose new value starts a run. If several have one, the first counts."""

_log = log.get(__name__)


def parts(settings: Settings, meters: Meters) -> Sequence[Part]:
    """Return the features that act beside the kinds. Their order has no effect, but for that of the log.

    Raises:
        ConfigError: a file or an address in the settings cannot be used.
    """
    return RoleMetrics(settings, meters), OperatorPage(settings), OperatorRights(settings, REQUIRED_RIGHTS)


class Features:
    """Features of an operator with their state that all kinds share."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        guard: LoopGuard,
        references: References,
        wake: Callable[[ObjectRef, Cause], None],
        *,
        has_page: bool,
    ) -> None:
        """`wake` requests the run of a resource. `has_page`: whether there is a status page."""
        self._guard, self._references, self._wake = guard, references, wake
        self._plans = LatestPlans({watch.gvk: watch.mode for watch in watches}, is_shown=has_page)
        self._rollouts = RolloutTable()
        pruning = [watch.gvk for watch in watches if watch.more.get(PRUNE_POLICY).then != "off"]
        if pruning and not settings.inject_owner_ref:
            _log.warning("prune has no effect with --inject-owner-ref=false", gvks=[*map(str, pruning)])
        self._uses: OperatorUses | None = None
        if pruning and settings.inject_owner_ref:
            self._uses = OperatorUses(lambda resource, why: wake(resource, Cause.of(PRUNE, (why,))))

    def sections(self) -> Sequence[PageSections]:
        """Return what the status page shows of the features."""
        return self._plans.sections(), self._rollouts.sections()

    def add(self, kind: Kind) -> None:
        """Add the hooks of a kind.

        The order is that of all calls. Before a run, hooks can skip those below them. After a run, the first act first.
        """
        scope, watch, client = kind.scope, kind.scope.watch, kind.operator.client
        plans = PlanRuns(kind.runs, scope.own, self._plans.add)
        removal = FinalizerRemoval(scope, client, kind.refusals) if watch.finalizer else None
        contention = ContentionReporter(scope, kind.operator.discovery, kind.status, self._guard)
        hosts = RunHosts(watch, client, kind.status) if watch.more.get(INVENTORY) else None
        checks = DriftChecks(scope, watch.more.get(DRIFT_POLICY), plans, kind.status)
        hooks: list[Hooks | None] = [
            self._schedule(kind),  # for each object that is reconciled, even if its run is skipped
            RunReports(scope),  # reports the run before the removal of the finalizer lets the object go
            kind.refusals,
            removal,  # nothing else for an object whose finalizer has run
            Pause(scope),  # before the hooks that send requests, or fail for an invalid object
            contention,  # ends its condition even if the run is skipped
            Annotations(scope),  # reads settings of the hooks below
            IgnoredReferences(scope),
            KnownReferences(scope, self._references) if watch.more.get(REFERENCES) else None,
            kind.runs,  # continues the run of an earlier operator, which cannot be skipped
            self._rollout(kind),  # after `runs`, and before requests and plans that an object that waits does not need
            _skipper(kind),  # before the check of the owner, which can need a request
            kind.owners,  # before plans and checks, which would be useless for a deleted object
            hosts,  # plans and checks need them too
            _planner(kind, plans),
            checks,  # after plans: an approved run needs no check
            self._pruner(kind),  # records the objects of a run that no other hooks can skip any more
        ]
        kind.hooks.extend(hook for hook in hooks if hook is not None)

    def _schedule(self, kind: Kind) -> DriftSchedule | None:
        policy, gvk = kind.scope.watch.more.get(DRIFT_POLICY), kind.scope.watch.gvk
        if policy is None:
            return None
        schedule = DriftSchedule(
            kind.queue, policy.period, lambda key: self._wake(ObjectRef(gvk, key), Cause.of(DRIFT, ()))
        )
        kind.scope.registry.subscribe(schedule.forget)
        return schedule

    def _pruner(self, kind: Kind) -> Pruner | None:
        scope, operator, uses = kind.scope, kind.operator, self._uses
        if uses is None:
            return None
        client, discovery, account = operator.client, operator.discovery, scope.watch.service_account
        deletion = PruneDeletion(scope, client, discovery, operator.observers, uses, account)
        space = auth.pod_namespace(auth.HostEnvironment.of_process())
        state = prune_store.storage(client, space, operator.settings.runner_dir)
        records = PruneRecords(scope, client, discovery, prune_store.RecordStore(state))
        return Pruner(scope, kind.executed, uses, records, deletion)

    def _rollout(self, kind: Kind) -> Rollout | None:
        scope, watch, settings = kind.scope, kind.scope.watch, kind.operator.settings
        policy = watch.more.get(ROLLOUT_POLICY)
        if policy is None:
            return None
        space = auth.OwnNamespaces.of_process(settings.leader_election_namespace).others or "default"
        selection = Selection(labels=watch.selector, fields=watch.field_selector)
        store = RolloutStore(kind.operator.client, space, watch.gvk, settings.namespaces, selection)
        rollout = Rollout(scope, policy, store, kind.executed, kind.queue.add)
        self._rollouts.kinds[watch.gvk] = rollout.progress
        return rollout


def next_change(watch: Watch) -> str:
    """Return the event after which an object runs again that had a terminal failure."""
    return REFERENCE_CHANGES if watch.more.get(REFERENCES) else OBJECT_CHANGES


def _planner(kind: Kind, plans: PlanRuns) -> PlanReconciler:
    scope, executed = kind.scope, kind.executed
    finalized = kind.operator.executed(scope.watch.as_finalizer()) if scope.watch.finalizer else executed
    contents = (executed, finalized)
    return PlanReconciler(scope, kind.operator.client, kind.runs, plans, kind.status, contents, kind.hooks)


def _skipper(kind: Kind) -> RunSkipper | None:
    if not kind.scope.watch.more.get(SKIPS):
        return None
    operator = kind.operator
    return RunSkipper(kind.scope, operator.client, operator.dependents, kind.inputs, kind.executed, kind.must_run)
