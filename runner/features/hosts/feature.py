"""Hosts as part of an operator: runs reach the machines that a spec names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runner.core.kube.rights import Places, RequiredRights, Right, granting
from runner.core.reconcile.feature import Feature, Kind
from runner.core.status.report import OwnStatus
from runner.features.hosts.fields import FIELDS, INVENTORY

if TYPE_CHECKING:
    from runner.core.kube.discovery import ApiResource
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch

FIELD = "hosts"
"""Field of the status with the results of the hosts."""


def hooks(kind: Kind) -> Hooks | None:
    """Return what prepares the hosts of runs, and reports their results."""
    if kind.scope.watch.more.get(INVENTORY) is None:
        return None
    from runner.features.hosts.run_hosts import RunHosts  # noqa: PLC0415 - see Feature

    return RunHosts(kind.scope.watch, kind.operator.client, kind.status)


def _rights(watch: Watch, resource: ApiResource, places: Places) -> set[Right]:
    policy = watch.more.get(INVENTORY)
    if policy is None or policy.credentials is None:
        return set()
    return granting(places.of(resource), "", "secrets", "get")


FEATURE = Feature(
    fields=(FIELDS,),
    status=OwnStatus(fields=frozenset({FIELD})),
    rights=RequiredRights(_rights),
    callbacks=(Path(__file__).with_name("callbacks"),),  # keeps the hosts of a resource and of the project apart
)
