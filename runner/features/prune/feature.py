"""`prune` as part of an operator: reports or deletes objects that runs created and no longer use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import RequiredRights, Right, granting
from runner.core.queue.reasons import RunReason
from runner.core.reconcile.feature import Feature, Kind, Part, PartBase
from runner.core.status.report import OwnStatus
from runner.features.prune.fields import FIELDS, PRUNE_POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import OwnNamespaces
    from runner.core.reconcile.hooks import Hooks
    from runner.core.watches.watch import Watch
    from runner.values.objects import GVK

PRUNABLE = "Prunable"
"""A condition of objects whose runs created objects that they no longer use."""
PRUNE = RunReason("prune check", 60.0, is_announced=False, repairs=True)


def hooks(kind: Kind) -> Hooks | None:
    """Return what records and prunes the objects of runs. If one watch has `prune`, all record which ones they use."""
    if not kind.operator.settings.inject_owner_ref or not _pruning(kind.operator.watches):
        return None
    from runner.features.prune import hooks as pruning  # noqa: PLC0415 - see Feature

    return pruning.of_kind(kind)


def _part(base: PartBase) -> Part | None:
    pruning = _pruning(base.watches)
    if not pruning:
        return None
    if not base.settings.inject_owner_ref:
        from runner.base import log  # noqa: PLC0415 - see Feature

        log.get(__name__).warning("prune has no effect with --inject-owner-ref=false", gvks=[*map(str, pruning)])
        return None
    from runner.features.prune.hooks import SharedUses  # noqa: PLC0415 - see Feature

    return SharedUses()


def _pruning(watches: Sequence[Watch]) -> list[GVK]:
    """Return the kinds whose watches have `prune`."""
    return [watch.gvk for watch in watches if watch.more.get(PRUNE_POLICY).then != "off"]


def _rights(_: Settings, watches: Sequence[Watch], own: OwnNamespaces) -> set[Right]:
    """Return the rights to record the objects that runs create."""
    if not own.pod or not _pruning(watches):
        return set()
    return granting([own.pod], "", "configmaps", "create", "get", "list", "update", "delete")


FEATURE = Feature(
    fields=(FIELDS,),
    status=OwnStatus(conditions=frozenset({PRUNABLE})),
    rights=RequiredRights(of_operator=_rights),
    reasons=(PRUNE,),
    part=_part,
)
