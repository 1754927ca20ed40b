"""The loop guard as part of an operator: delays runs that other objects start again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.reconcile.feature import Feature, Kind, Operator, Part, PartBase
from runner.core.status.report import OwnStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.core.dependents.notification import Trigger
    from runner.core.queue.reasons import Cause
    from runner.core.reconcile.hooks import Hooks
    from runner.features.loopguard.guard import LoopGuard
    from runner.values.objects import ObjectRef

CONTENDED = "Contended"
"""A condition of objects whose runs are delayed."""


class GuardedTriggers(Part):
    """The guard of an operator."""

    guard: LoopGuard

    def trigger(self, wake: Callable[[ObjectRef, Cause], None]) -> Trigger:
        """Return the trigger of the guard."""
        from runner.features.loopguard.guard import LoopGuard  # noqa: PLC0415 - see Feature

        self.guard = LoopGuard(wake)
        return self.guard.trigger

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Count the triggers that the budget delays."""
        self.guard.declare(operator.metrics)
        return {}


def reporter(kind: Kind) -> Hooks:
    """Return the reports about contention."""
    from runner.features.loopguard.reports import ContentionReporter  # noqa: PLC0415 - see Feature

    guard = kind.operator.part(GuardedTriggers).guard
    return ContentionReporter(kind.scope, kind.operator.discovery, kind.status, guard)


def _part(_base: PartBase) -> Part:
    return GuardedTriggers()


FEATURE = Feature(status=OwnStatus(conditions=frozenset({CONTENDED})), part=_part)
