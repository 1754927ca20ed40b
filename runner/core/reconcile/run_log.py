"""Log of a run (blocks of task output, and lines at its start and end), and Kubernetes Events about it.

Blocks have the format of the Go operator; a log line before each names its object. In the formats `lines` and `json`
they are log lines: with the indented output below, or with the output as a field. Lines have the fields `job`, `gvk`,
`name` and `namespace`. Each failed task has a line with its file and line. Missing rights are logged with each failure,
and once for runs that succeed without them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TextIO, TypeAlias

from runner.base import log
from runner.base.config.settings import TaskFormat
from runner.base.events.bodies import ApiEvent, EventType
from runner.base.events.recorder import EventQueue
from runner.base.page import plural
from runner.core.engine import blocks
from runner.core.engine.blocks import BlockWriter, Level, attributable
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.masking.masker import Budget
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.status import report
from runner.core.watches.watch import content_name
from runner.values.objects import ObjectRef, first_names, mapping

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

    def refused(self, why: str) -> None:
        """The API server refuses a request about the object."""
        self.record("Warning", "RequestRefused", "Retry", why)

    def given_up(self, why: str) -> None:
        """The object does not run until it changes."""
        self.record("Warning", "GivenUp", "Wait", why)

    def record(self, kind: EventType, reason: str, action: str, note: str) -> None:
        """Record an Event of the operator or of a feature."""
        self.events.record(ApiEvent(self.about, None, kind, reason, action, note))


class RunEvents:
    """Events of one run.

    A task whose name begins with `Phase: ` starts a phase when it has run. The phase ends when the next one starts, or
    with the run. It has failed if one of its tasks failed, even if a block rescued the task. Notes are masked.
    """

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
        if request.reason is reasons.RETRY:
            alike = why
            # A run that could not reach hosts, for example, does not count as failed.
            count, what = (request.failed_runs, "failed run") if request.failed_runs else (request.failures, "attempt")
            why = f"{why} after {plural(count, what)}" if count else why
        elif request.details:
            why = f"{why}: {first_names(request.details, _MOST_DETAILS)}"
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
        more = " and requested another run" if result.unfinished else ""
        note, recap = f"{self._what} succeeded{more} after {result.duration:.1f} s", result.recap
        alike = f"{recap.ok} ok, {recap.changed} changed, {recap.skipped} skipped" if recap else ""
        if result.outcome is Outcome.SUCCEEDED:
            self._record("Normal", "Succeeded", f"{note}: {alike}" if alike else note, alike=alike or "-")
            return
        others = len(result.failures) - 1
        more = f"; and {plural(others, 'more failed task')}" if others > 0 else ""
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


_WHOLE_OUTPUT = 5.0
"""Seconds of CPU time to mask a run's whole output."""
Form: TypeAlias = Literal["blocks", "lines", "json", "short"]
"""Format of task output; `short`: a console has a line for each task, and no output."""
_OUTPUT = "Task output"


class ObservedRun(Protocol):
    """Record of one run, kept by a log or a journal."""

    def event(self, event: Event) -> None:
        """Record one event of ansible-runner."""
        ...

    def end(self, result: RunResult, api: RunStats) -> None:
        """Record the end; not called if the operator stops first."""
        ...


class RunObserver(Protocol):
    """Creates the record of each run."""

    def start(self, job: Job, request: ReconcileRequest) -> ObservedRun:
        """Record that a run starts, and why."""
        ...


@dataclass(frozen=True, slots=True)
class RunLog:
    """Writes the log of all runs."""

    level: Level
    writer: BlockWriter
    whole_output: bool
    """Whether a run's complete output is printed again at its end."""
    form: Form = "blocks"
    logged: log.Once = field(default_factory=log.Once, compare=False)
    """Missing rights of runs that succeeded."""
    waits: log.Once = field(default_factory=log.Once, compare=False)
    """Objects whose last run ended because it waits for its place. The next one is logged when it really begins."""

    def start(self, job: Job, request: ReconcileRequest) -> LoggedRun:
        """Log the start of a run."""
        return LoggedRun(self, job, request)


class LoggedRun:
    """Log of one run."""

    def __init__(self, run_log: RunLog, job: Job, request: ReconcileRequest) -> None:
        self._run_log = run_log
        self._job = job
        self._output: list[str] = []
        self._tasks = 0
        self._reason = request.reason.value
        self._identity = {"job": job.ident, "gvk": str(job.gvk), **job.key._asdict()}
        self._log = log.get(__name__, **self._identity)
        self._log_start = partial(
            self._log.info,
            "Run started",
            verbosity=job.verbosity,
            reason=self._reason,
            details=list(request.details) or None,
            content=content_name(job.content),
            waited=round(request.waited, 6),
            failures=request.failures,
        )
        self._is_held = run_log.waits.reset((job.gvk, job.key))
        if not self._is_held:
            self._log_start()

    def event(self, event: Event) -> None:
        """Record one event of ansible-runner."""
        self._release()
        if self._run_log.whole_output and event.get("stdout"):
            self._output.append(event["stdout"])
        for text in self._shown(event):
            self._run_log.writer.write(text)

    def end(self, result: RunResult, api: RunStats) -> None:
        """Log the end of the run."""
        if result.waits:
            self._run_log.waits.is_new((self._job.gvk, self._job.key))
            if self._is_held:
                return
        self._release()
        self._log_missing_rights(api, result)
        for failure in result.failures:
            place = {"task": failure.task, "host": failure.host or None, "path": failure.path or None}
            self._log.error("Task failed", **place, error=failure.message)
        if self._output:
            # Masked again: some secret values were not known yet when this output was first written.
            self._run_log.writer.write("\n".join([*self._output, ""]), through=self._masked_output)
        say = self._log.info if result.outcome in {Outcome.SUCCEEDED, Outcome.CANCELED} else self._log.error
        recap = result.recap
        say(
            "Run ended",
            outcome=result.outcome.value,
            reason=self._reason,
            seconds=round(result.duration, 3),
            ok=recap.ok if recap else None,
            changed=recap.changed if recap else None,
            api_calls=api.calls,
            api_seconds=round(api.seconds, 3),
            cache_hits=api.hits,
            cache_misses=api.misses,
            **({"pod": result.pod} if result.pod else {}),
            error=self._error(result, api),
        )

    def _release(self) -> None:
        """Log the start of a run that was logged as waiting before."""
        if self._is_held:
            self._is_held = False
            self._log_start()

    @staticmethod
    def _error(result: RunResult, api: RunStats) -> str | None:
        if result.outcome in {Outcome.SUCCEEDED, Outcome.CANCELED}:
            return result.message or None
        return report.first_failure(result, api.forbidden())

    def _log_missing_rights(self, api: RunStats, result: RunResult) -> None:
        for sentence in api.forbidden():
            if result.outcome is not Outcome.SUCCEEDED:
                self._log.error("A run lacks a right; add the rule", error=sentence)
            elif self._run_log.logged.is_new(sentence):
                self._log.warning("A run succeeded without a right that it requested; add the rule", problem=sentence)

    def _shown(self, event: Event) -> Iterator[str]:
        """Yield the log's text about an event."""
        level, form, raised = self._run_log.level, self._run_log.form, self._job.raised
        if form == "short" and (raised or level == "everything"):
            form = "lines"
        is_start = blocks.is_start(event)
        self._tasks += is_start
        data = mapping(event.get("event_data"))
        about = {"task": data["task"]} if data.get("task") else {}
        if form == "blocks":
            for text in (blocks.block(event, level, raised=raised), self._recap(event)):
                if text is not None:
                    yield log.line(__name__, _OUTPUT, **self._identity, **about) + text
            return
        output = blocks.output(event, level, raised=raised)
        if output is None:
            return
        if event.get("event") in blocks.FAILURES and data.get("task_path"):
            about["path"] = data["task_path"]
        is_line = form == "lines" and level == "tasks" and is_start
        line = partial(log.any_line, __name__, "Task started" if is_line else _OUTPUT, **self._identity, **about)
        if form in {"json", "short"}:
            about_task = {"ansible_event": event.get("event"), "action": data.get("task_action"), "output": output}
            yield line(number=self._tasks, **about_task)
        else:
            yield line() + ("" if is_line else _indented(output + "\n"))

    def _masked_output(self, text: str) -> str:
        """Mask a large text in the thread of the writer."""
        masked = self._job.secrets.masker.text(text, Budget(_WHOLE_OUTPUT))
        if self._run_log.form == "json":
            return log.any_line(__name__, "Run output", **self._identity, output=log.visible(masked))
        return attributable(masked) if self._run_log.form == "blocks" else _indented(log.visible(masked))

    def _recap(self, event: Event) -> str | None:
        if self._run_log.level == "nothing":
            return None
        return blocks.recap_block(event, self._job.gvk, self._job.key)


def _indented(text: str) -> str:
    """Return text whose lines cannot be mistaken for lines of the log."""
    return textwrap.indent(text, "    ", lambda _: True)


def form_of(wanted: TaskFormat) -> Form:
    """Return the format of task output for an option: lines in a console log, otherwise blocks by default."""
    if wanted != "auto":
        return wanted
    return "short" if log.is_console() else "blocks"


def block_writer(stream: TextIO, form: Form) -> BlockWriter:
    """Return a writer of task output, whose own messages have the same format."""
    if form == "blocks":
        return BlockWriter(stream)
    dropped = "Blocks of task output were dropped: nobody read this stream, or it was full"
    return BlockWriter(stream, dropped_line=lambda count: log.any_line(__name__, dropped, count=count))
