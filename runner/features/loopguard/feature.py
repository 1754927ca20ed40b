"""The loop guard as part of an operator: delays runs that other objects start again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.reconcile.feature import Feature, Part
from runner.core.status.own import OwnStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.base.config.settings import Settings
    from runner.base.meters import Meters
    from runner.core.dependents.notification import Trigger
    from runner.core.queue.request import Cause
    from runner.core.reconcile.hooks import Hooks
    from runner.core.reconcile.kind import Kind
    from runner.core.watches.watch import Watch
    from runner.features.loopguard.guard import LoopGuard
    from runner.values.objects import ObjectRef

CONTENDED = "Contended"
"""A condition of objects whose runs are delayed."""


class GuardedTriggers(Part):
    """The guard of an operator."""

    guard: LoopGuard

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def trigger(self, wake: Callable[[ObjectRef, Cause], None]) -> Trigger:
        """Return the trigger of the guard."""
        from runner.features.loopguard.guard import LoopGuard, delays  # noqa: PLC0415 - see Feature

        self.guard = LoopGuard(wake, delays(self._meters))
        return self.guard.trigger


def reporter(kind: Kind) -> Hooks:
    """Return the reports about contention."""
    from runner.features.loopguard.reports import ContentionReporter  # noqa: PLC0415 - see Feature

    guard = kind.operator.part(GuardedTriggers).guard
    return ContentionReporter(kind.scope, kind.operator.discovery, kind.status, guard)


def _part(_settings: Settings, meters: Meters, _watches: Sequence[Watch]) -> Part:
    return GuardedTriggers(meters)


FEATURE = Feature(status=OwnStatus(conditions=frozenset({CONTENDED})), part=_part)
