"""Required rights as part of an operator: checked at start, recorded with `--record-rbac`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.reconcile.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.core.reconcile.feature import Part
    from runner.core.watches.watch import Watch


def _part(settings: Settings, _meters: Meters, _watches: Sequence[Watch]) -> Part:
    from runner.features.rights.privileges import OperatorRights  # noqa: PLC0415 - see Feature

    return OperatorRights(settings)


FEATURE = Feature(part=_part)
