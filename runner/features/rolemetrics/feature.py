"""Metrics of roles as part of an operator."""

from __future__ import annotations

from runner.core.reconcile.feature import Feature, Part, PartBase


def _part(_base: PartBase) -> Part:
    from runner.features.rolemetrics.endpoint import RoleMetrics  # noqa: PLC0415 - see Feature

    return RoleMetrics()


FEATURE = Feature(part=_part)
