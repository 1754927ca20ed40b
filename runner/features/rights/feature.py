"""Required rights as part of an operator: checked at start, recorded with `--record-rbac`."""

from __future__ import annotations

from runner.core.reconcile.feature import Feature, Part, PartBase


def _part(base: PartBase) -> Part:
    from runner.features.rights.privileges import OperatorRights  # noqa: PLC0415 - see Feature

    return OperatorRights(base.settings)


FEATURE = Feature(part=_part)
