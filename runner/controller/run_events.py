"""The story of an object's runs, as events: why one started, its phases, what came of it. Decides; `events` writes.

A role names a phase by a task whose name begins with `Phase: `, usually a `debug`: the phase begins when that task has
run, and ends when the next one begins, or with the run. A phase in which a task failed has failed, also where a block
rescued it. Notes hold none of a run's secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.engine.job import Event, Job, Outcome, RunResult
from runner.events.bodies import ApiEvent, EventType
from runner.events.recorder import EventRecorder
from runner.objects import PAUSED, ObjectRef
from runner.status import report
from runner.workqueue.request import Reason, Request

_PHASE = "phase:"
_MARKED = "runner_on_ok"
_FAILED = "runner_on_failed"
_ENDINGS = {Outcome.SUCCEEDED: "Succeeded", Outcome.TIMED_OUT: "TimedOut", Outcome.CANCELED: "Canceled"}
_MOST_DETAILS = 5


@dataclass(frozen=True, slots=True)
class ObjectEvents:
    """Events about one object."""

    events: EventRecorder
    about: ObjectRef

    def paused(self) -> None:
        """The object is left as it is."""
        self._tell("Normal", "Paused", "Wait", f"Not run while the annotation {PAUSED} is true")

    def unusable(self, why: str) -> None:
        """The object cannot be run as it is."""
        self._tell("Warning", "NotRunnable", "Wait", why)

    def given_up(self, why: str) -> None:
        """No further run takes place until something changes."""
        self._tell("Warning", "GivenUp", "Wait", why)

    def slowed_down(self, reason: str, other: ObjectRef, why: str) -> None:
        """What the object owns or names has put it into a circle."""
        self.events.record(ApiEvent(self.about, other, "Warning", reason, "SlowedDown", why))

    def _tell(self, kind: EventType, reason: str, action: str, note: str) -> None:
        self.events.record(ApiEvent(self.about, None, kind, reason, action, note))


class RunEvents:
    """Events of one run."""

    def __init__(self, events: EventRecorder, about: ObjectRef, job: Job, *, finalizing: bool) -> None:
        self._events = events
        self._about = about
        self._masked = job.secrets.masker.text
        self._what = "Finalizer" if finalizing else "Run"
        self._phase = ""
        self._has_failed = False
        """Whether a task of the phase has."""

    def started(self, request: Request) -> None:
        """Say why the run takes place."""
        why, alike = request.reason.value, ""
        if request.reason is Reason.RETRY:
            alike = why
            why = f"{why} after {_count(request.failed_runs, 'failed run')}"
        elif request.details:
            more = len(request.details) - _MOST_DETAILS
            details = ", ".join(request.details[:_MOST_DETAILS]) + (f" and {more} more" if more > 0 else "")
            why = f"{why}: {details}"
        self._tell("Normal", "Started", f"{self._what} started, {why}", alike)

    def event(self, event: Event) -> None:
        """Take in one event of ansible-runner."""
        kind, data = event.get("event"), event.get("event_data") or {}
        if kind == _FAILED and not data.get("ignore_errors"):
            self._has_failed = True
        task = str(data.get("task") or "") if kind == _MARKED else ""
        if task.lower().startswith(_PHASE):
            self._end_phase("ended")
            self._phase = task[len(_PHASE) :].strip()
            if self._phase:
                self._tell_phase("Normal", "PhaseStarted", f"Phase {self._phase} started")

    def ended(self, result: RunResult) -> None:
        """Say what came of it."""
        well = result.outcome in {Outcome.SUCCEEDED, Outcome.CANCELED}
        self._end_phase("ended" if result.outcome is Outcome.SUCCEEDED else "was cut short", well=well)
        note, recap = f"{self._what} succeeded after {result.duration:.1f} s", result.recap
        alike = f"{recap.ok} ok, {recap.changed} changed, {recap.skipped} skipped" if recap else ""
        if result.outcome is Outcome.SUCCEEDED:
            self._tell("Normal", "Succeeded", f"{note}: {alike}" if alike else note, alike=alike or "-")
            return
        others = len(result.failures) - 1
        more = f"; and {_count(others, 'more failed task')}" if others > 0 else ""
        ending = _ENDINGS.get(result.outcome, "Failed")
        self._tell("Normal" if well else "Warning", ending, report.first_failure(result) + more)

    def _end_phase(self, how: str, *, well: bool = True) -> None:
        if self._has_failed and well:
            how, well = "failed", False
        self._has_failed = False
        if self._phase:
            self._tell_phase("Normal" if well else "Warning", "PhaseEnded", f"Phase {self._phase} {how}")
            self._phase = ""

    def _tell_phase(self, kind: EventType, reason: str, note: str) -> None:
        self._events.record(ApiEvent(self._about, None, kind, reason, self._what, self._masked(note)))

    def _tell(self, kind: EventType, ending: str, note: str, alike: str = "") -> None:
        told = ApiEvent(self._about, None, kind, f"{self._what}{ending}", self._what, self._masked(note))
        self._events.record(replace(told, alike=alike))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
