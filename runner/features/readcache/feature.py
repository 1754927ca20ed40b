"""The read cache as part of an operator: answers for owned objects without a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.reconcile.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.core.reconcile.feature import Part
    from runner.core.watches.watch import Watch


def _part(_settings: Settings, meters: Meters, _watches: Sequence[Watch]) -> Part:
    from runner.features.readcache.setup import CachedReads  # noqa: PLC0415 - see Feature

    return CachedReads(meters)


FEATURE = Feature(part=_part)
