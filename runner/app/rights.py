"""Rights that the parts of the operator require."""

from __future__ import annotations

from collections.abc import Sequence

from runner.core.kube import reviews, rights
from runner.core.kube.rights import RequiredRights
from runner.engines.pod import rights as pods
from runner.features.hosts import run_hosts as hosts
from runner.features.plan import runs as plan_runs
from runner.features.prune import store as prune
from runner.features.replicas import leases
from runner.features.rollout import store as rollout
from runner.features.unchanged import hooks as unchanged

REQUIRED_RIGHTS: Sequence[RequiredRights] = (
    rights.OF_WATCHES,
    reviews.RIGHTS,
    leases.RIGHTS,
    hosts.RIGHTS,
    plan_runs.RIGHTS,
    prune.RIGHTS,
    rollout.RIGHTS,
    unchanged.RIGHTS,
    pods.RIGHTS,
)
"""Their order has no effect."""
