"""The read cache as part of an operator: answers for owned objects without a request."""

from __future__ import annotations

from runner.core.reconcile.feature import Feature, Part, PartBase


def _part(_base: PartBase) -> Part:
    from runner.features.readcache.handler import CachedReads  # noqa: PLC0415 - see Feature

    return CachedReads()


FEATURE = Feature(part=_part)
