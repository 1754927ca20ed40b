"""Kubernetes Events about runs: the start with its reason, phases, and the result. Pure, except for `EventQueue`.

A task whose name begins with `Phase: ` starts a phase when it has run. The phase ends when the next one starts, or with
the run. It has failed if one of its tasks failed, even if a block rescued the task. Notes are masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.engine.job import Event, Job, Outcome, RunResult
from runner.events.bodies import ApiEvent, EventType
from runner.events.recorder import EventQueue
from runner.objects import PAUSED, ObjectRef
from runner.status import report
from runner.workqueue.request import ReconcileRequest, RunReason

_PHASE = "phase:"
_MARKED = "runner_on_ok"
_FAILED = "runner_on_failed"
_ENDINGS = {Outcome.SUCCEEDED: "Succeeded", Outcome.TIMED_OUT: "TimedOut", Outcome.CANCELED: "Canceled"}
_MOST_DETAILS = 5


@dataclass(frozen=True, slots=True)
class ObjectEvents:
    """Events about one object."""

    events: EventQueue
    about: ObjectRef

    def paused(self) -> None:
        """The object is paused."""
        self._record("Normal", "Paused", "Wait", f"Not run while the annotation {PAUSED} is true")

    def unusable(self, why: str) -> None:
        """The object cannot run as it is."""
        self._record("Warning", "NotRunnable", "Wait", why)

    def refused(self, why: str) -> None:
        """The API server refuses a request about the object."""
        self._record("Warning", "RequestRefused", "Retry", why)

    def planned(self, note: str) -> None:
        """A plan differs from the one before."""
        self._record("Normal", "Planned", "Plan", note)

    def plan_approved(self, approved: str) -> None:
        """A user approved a plan, which is executed now."""
        self._record("Normal", "PlanApproved", "Run", f"Plan {approved} is executed")

    def plan_stale(self, why: str) -> None:
        """An approved plan was not executed, or not to its end."""
        self._record("Warning", "PlanStale", "Wait", why)

    def plan_failed(self, why: str) -> None:
        """A plan run failed."""
        self._record("Warning", "PlanFailed", "Plan", why)

    def drifted(self, what: str) -> None:
        """Other clients changed what the role sets."""
        self._record("Warning", "Drifted", "Check", what)

    def given_up(self, why: str) -> None:
        """The object does not run until it changes."""
        self._record("Warning", "GivenUp", "Wait", why)

    def slowed_down(self, reason: str, other: ObjectRef, why: str) -> None:
        """A dependent or a reference runs the object again and again."""
        self.events.record(ApiEvent(self.about, other, "Warning", reason, "SlowedDown", why))

    def pruned(self, objects: Sequence[str]) -> None:
        """Unused objects were deleted."""
        more = f" and {len(objects) - _MOST_DETAILS} more" if len(objects) > _MOST_DETAILS else ""
        self._record("Normal", "Pruned", "Prune", f"Deleted unused objects: {', '.join(objects[:_MOST_DETAILS])}{more}")

    def _record(self, kind: EventType, reason: str, action: str, note: str) -> None:
        self.events.record(ApiEvent(self.about, None, kind, reason, action, note))


class RunEvents:
    """Events of one run."""

    def __init__(self, events: EventQueue, about: ObjectRef, job: Job, *, finalizing: bool) -> None:
        self._events = events
        self._about = about
        self._masked = job.secrets.masker.text
        self._what = "Finalizer" if finalizing else "Run"
        self._phase = ""
        self._has_failed = False
        """Whether a task of the phase failed."""

    def started(self, request: ReconcileRequest) -> None:
        """Record the start of the run with its reason."""
        why, alike = request.reason.value, ""
        if request.reason is RunReason.RETRY:
            alike = why
            why = f"{why} after {_count(request.failed_runs, 'failed run')}"
        elif request.details:
            more = len(request.details) - _MOST_DETAILS
            details = ", ".join(request.details[:_MOST_DETAILS]) + (f" and {more} more" if more > 0 else "")
            why = f"{why}: {details}"
        self._record("Normal", "Started", f"{self._what} started, {why}", alike)

    def event(self, event: Event) -> None:
        """Record phases and failed tasks from an event of ansible-runner."""
        kind, data = event.get("event"), event.get("event_data") or {}
        if kind == _FAILED and not data.get("ignore_errors"):
            self._has_failed = True
        task = str(data.get("task") or "") if kind == _MARKED else ""
        if task.lower().startswith(_PHASE):
            self._end_phase("ended")
            self._phase = task[len(_PHASE) :].strip()
            if self._phase:
                self._record_phase("Normal", "PhaseStarted", f"Phase {self._phase} started")

    def ended(self, result: RunResult, missing: Sequence[str] = ()) -> None:
        """Record the result. `missing`: sentences about rights that the run lacked."""
        well = result.outcome in {Outcome.SUCCEEDED, Outcome.CANCELED}
        self._end_phase("ended" if result.outcome is Outcome.SUCCEEDED else "was cut short", well=well)
        note, recap = f"{self._what} succeeded after {result.duration:.1f} s", result.recap
        alike = f"{recap.ok} ok, {recap.changed} changed, {recap.skipped} skipped" if recap else ""
        if result.outcome is Outcome.SUCCEEDED:
            self._record("Normal", "Succeeded", f"{note}: {alike}" if alike else note, alike=alike or "-")
            return
        others = len(result.failures) - 1
        more = f"; and {_count(others, 'more failed task')}" if others > 0 else ""
        ending = _ENDINGS.get(result.outcome, "Failed")
        self._record("Normal" if well else "Warning", ending, report.first_failure(result, missing) + more)

    def _end_phase(self, how: str, *, well: bool = True) -> None:
        if self._has_failed and well:
            how, well = "failed", False
        self._has_failed = False
        if self._phase:
            self._record_phase("Normal" if well else "Warning", "PhaseEnded", f"Phase {self._phase} {how}")
            self._phase = ""

    def _record_phase(self, kind: EventType, reason: str, note: str) -> None:
        self._events.record(ApiEvent(self._about, None, kind, reason, self._what, self._masked(note)))

    def _record(self, kind: EventType, ending: str, note: str, alike: str = "") -> None:
        event = ApiEvent(self._about, None, kind, f"{self._what}{ending}", self._what, self._masked(note))
        self._events.record(replace(event, alike=alike))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
