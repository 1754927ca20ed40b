"""Metrics of roles as part of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.reconcile.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.core.reconcile.feature import Part
    from runner.core.watches.watch import Watch


def _part(settings: Settings, meters: Meters, _watches: Sequence[Watch]) -> Part:
    from runner.features.rolemetrics.endpoint import RoleMetrics  # noqa: PLC0415 - see Feature

    return RoleMetrics(settings, meters)


FEATURE = Feature(part=_part)
