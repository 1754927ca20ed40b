"""`ready: dependents` as part of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import Places, RequiredRights, Right, granting
from runner.core.reconcile.feature import Feature, Kind
from runner.core.status.report import OwnStatus
from runner.features.ready.fields import FIELDS, FOLLOWS

if TYPE_CHECKING:
    from runner.core.kube.discovery import ApiResource
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch

NOT_READY, FAILED, UNKNOWN = "DependentsNotReady", "DependentFailed", "DependentsUnknown"
"""Reasons of `Ready` while a dependent is not ready."""


def hooks(kind: Kind) -> Hooks | None:
    """Return what follows the dependents of a watch's objects."""
    if not kind.scope.watch.more.get(FOLLOWS):
        return None
    from runner.features.ready.following import FollowedDependents  # noqa: PLC0415 - see Feature

    return FollowedDependents(kind.scope, kind.operator, kind.status)


def _rights(watch: Watch, _resource: ApiResource, places: Places) -> set[Right]:
    """Return the rights to read why pods are not ready, which have a namespace also if the watched kind has none."""
    if not watch.more.get(FOLLOWS):
        return set()
    return granting([*filter(None, places.watched)] or [""], "", "pods", "list")


FEATURE = Feature(
    fields=(FIELDS,),
    status=OwnStatus(reasons=frozenset({NOT_READY, FAILED, UNKNOWN})),
    rights=RequiredRights(_rights),
)
