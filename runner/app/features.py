"""Features of the operator, and the order in which the hooks of a kind are called.

To remove a feature, delete its folder and the lines that name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.app.engines import PLUGINS
from runner.core.kube import rights
from runner.core.reconcile.feature import Feature, Kind
from runner.core.status import report
from runner.core.status.report import OwnStatus
from runner.features.discoverycache import feature as discoverycache
from runner.features.hosts import feature as hosts
from runner.features.loopguard import feature as loopguard
from runner.features.masking import feature as masking
from runner.features.plan import feature as plan
from runner.features.prune import feature as prune
from runner.features.readcache import feature as readcache
from runner.features.ready import feature as ready
from runner.features.references import feature as references
from runner.features.replicas import feature as replicas
from runner.features.rights import feature as required_rights
from runner.features.rolemetrics import feature as rolemetrics
from runner.features.rollout import feature as rollout
from runner.features.ui import feature as ui
from runner.features.unchanged import feature as unchanged

if TYPE_CHECKING:
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch

FEATURES: Sequence[Feature] = (
    references.FEATURE,
    hosts.FEATURE,  # after the references, to which its field adds the Secret with credentials
    masking.FEATURE,  # its observer of requests is the first: a request that waits is known already
    plan.FEATURE,
    rollout.FEATURE,
    prune.FEATURE,
    unchanged.FEATURE,
    loopguard.FEATURE,
    ready.FEATURE,
    readcache.FEATURE,
    discoverycache.FEATURE,
    replicas.FEATURE,
    rolemetrics.FEATURE,
    ui.FEATURE,
    required_rights.FEATURE,
)
"""Of what several features add, that of the first comes first. Where no reason stands, the order has no effect."""

FEATURE_FIELDS = (
    *(fields for plugin in PLUGINS for fields in plugin.fields),
    *(fields for feature in FEATURES for fields in feature.fields),
)
"""Fields of watches.yaml beside those of the core, in the order of messages and of the reference page."""
OWN_STATUS = OwnStatus.joined(report.OWN, *(feature.status for feature in FEATURES))
"""Parts of the status of each object that only the operator and its features write."""
REQUIRED_RIGHTS = (
    rights.OF_WATCHES,
    rights.OF_METRICS,
    *(plugin.rights for plugin in PLUGINS),
    *(feature.rights for feature in FEATURES),
)
CALLBACKS = tuple(folder for feature in FEATURES for folder in feature.callbacks)
"""Folders of callbacks of Ansible that features add to each run. Ansible loads them in this order."""
REASONS = tuple(reason for feature in FEATURES for reason in feature.reasons)
MARKS = tuple(mark for feature in FEATURES for mark in feature.marks)
"""Annotations whose new value starts a run."""


def environments(watch: Watch, environment: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
    """Return what overrides the operator's environment in runs of a watch; most runs have the first.

    `environment` is what does so in the runs of all watches.
    """
    own = (feature.environments for feature in FEATURES if feature.environments is not None)
    of_feature = next(own, None)
    return [environment] if of_feature is None else of_feature(watch, environment)


def hooks(kind: Kind) -> list[Hooks]:
    """Return the hooks of a kind. The order is that of all calls.

    Before a run, hooks can skip those below them. After a run, the first act first.
    """
    from runner.core.reconcile import own_hooks as own  # noqa: PLC0415 - slow to import; commands need only the fields

    scope, client = kind.scope, kind.operator.client
    ordered = (
        plan.schedule(kind),  # for each object that is reconciled, even if its run is skipped
        own.RunReports(scope),  # reports the run before the removal of the finalizer lets the object go
        kind.refusals,
        own.removal(scope, client, kind.refusals),  # nothing else for an object whose finalizer has run
        own.Pause(scope),  # before the hooks that send requests, or fail for an invalid object
        loopguard.reporter(kind),  # ends its condition even if the run is skipped
        own.Annotations(scope),  # reads annotations for the hooks below
        references.hooks(kind),
        kind.runs,  # continues the run of an earlier operator, which cannot be skipped
        rollout.hooks(kind),  # after `runs`, and before requests and plans that an object that waits does not need
        unchanged.hooks(kind),  # before the check of the owner, which can need a request
        kind.owners,  # before plans and checks, which would be useless for a deleted object
        hosts.hooks(kind),  # plans and checks need them too
        plan.planner(kind),
        plan.checks(kind),  # after plans: an approved run needs no check
        ready.hooks(kind),  # after those that change which dependents there are
        prune.hooks(kind),  # records the objects of a run that no other hooks can skip any more
    )
    return [made for made in ordered if made is not None]
