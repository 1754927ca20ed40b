"""Rollouts as part of an operator: changed content runs on some objects first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import RequiredRights, Right, granting
from runner.core.queue.reasons import RunReason
from runner.core.reconcile.feature import Feature, Kind, Part, PartBase
from runner.features.rollout.fields import FIELDS, ROLLOUT_POLICY
from runner.features.rollout.member import OWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import OwnNamespaces
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch

ROLLOUT = RunReason("rollout", 600.0)


def hooks(kind: Kind) -> Hooks | None:
    """Return the rollout of a watch."""
    if kind.scope.watch.more.get(ROLLOUT_POLICY) is None:
        return None
    from runner.features.rollout import hooks as rollouts  # noqa: PLC0415 - see Feature

    return rollouts.of_kind(kind)


def _part(base: PartBase) -> Part | None:
    if all(watch.more.get(ROLLOUT_POLICY) is None for watch in base.watches):
        return None
    from runner.features.rollout.hooks import RolloutTable  # noqa: PLC0415 - see Feature

    return RolloutTable()


def _rights(_: Settings, watches: Sequence[Watch], own: OwnNamespaces) -> set[Right]:
    if all(watch.more.get(ROLLOUT_POLICY) is None for watch in watches):
        return set()
    return granting([own.others or "default"], "", "configmaps", "create", "get", "update")


FEATURE = Feature(
    fields=(FIELDS,), status=OWN, rights=RequiredRights(of_operator=_rights), reasons=(ROLLOUT,), part=_part
)
