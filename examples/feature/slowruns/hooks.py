"""Condition `Slow` of objects whose last run took longer than expected, and the number of such runs."""

from __future__ import annotations

from runner.features.slowruns.feature import SLOW

from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.hooks import FinishedRun, Hooks
from runner.core.status.conditions import ended, make
from runner.core.status.report import StatusReport


class SlowRuns(Hooks):
    """Reports slow runs of one watch."""

    def __init__(self, scope: WatchScope, expected: float) -> None:
        """`expected`: seconds that a run may take."""
        self._expected = expected
        counter = scope.metrics.counter("slow_runs", "Runs that took longer than expectedWithin", ["GVK"])
        self._slow = counter.labels(str(scope.watch.gvk))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Write the condition together with the result of the run."""
        seconds = run.result.duration
        if seconds <= self._expected:
            return StatusReport(ended(attempt.obj, SLOW, "AsExpected"))
        self._slow.inc()
        message = f"The last run took {seconds:.1f} s, and {self._expected:g} s are expected"
        return StatusReport((make(SLOW, "True", "TookLonger", message),))
