"""Reports about slow runs as part of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.features.slowruns.fields import EXPECTED_WITHIN, FIELDS

from runner.core.reconcile.feature import Feature
from runner.core.status.report import OwnStatus

if TYPE_CHECKING:
    from runner.core.reconcile.feature import Kind
    from runner.core.reconcile.hooks import Hooks

SLOW = "Slow"
"""A condition of objects whose last run took longer than expected."""


def hooks(kind: Kind) -> Hooks | None:
    """Return the reports of a watch."""
    expected = kind.scope.watch.more.get(EXPECTED_WITHIN)
    if expected is None:
        return None
    from runner.features.slowruns.hooks import SlowRuns  # noqa: PLC0415 - see Feature

    return SlowRuns(kind.scope, expected)


FEATURE = Feature(fields=(FIELDS,), status=OwnStatus(conditions=frozenset({SLOW})))
