"""Log of a run: blocks of task output, and lines at its start and end.

Blocks have the format of the Go operator; a log line before each names its object. Lines have the fields `job`, `gvk`,
`name` and `namespace`. Each failed task has a line with its file and line. Missing rights are logged with each failure,
and once for runs that succeed without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runner import log
from runner.engine.blocks import BlockWriter, Level, attributable, block, recap_block
from runner.engine.job import Event, Job, Outcome, RunResult
from runner.masking.masker import Budget
from runner.proxy.identity import RunStats
from runner.watches.watch import content_name
from runner.workqueue.request import ReconcileRequest

_WHOLE_OUTPUT = 5.0
"""Seconds of CPU time to mask a run's whole output."""


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
class RunObservers:
    """Several recorders as one."""

    each: Sequence[RunObserver]

    def start(self, job: Job, request: ReconcileRequest) -> ObservedRun:
        """Start a record of each recorder."""
        return _RunRecords([recorder.start(job, request) for recorder in self.each])


@dataclass(frozen=True, slots=True)
class _RunRecords:
    each: Sequence[ObservedRun]

    def event(self, event: Event) -> None:
        for record in self.each:
            record.event(event)

    def end(self, result: RunResult, api: RunStats) -> None:
        for record in self.each:
            record.end(result, api)


@dataclass(frozen=True, slots=True)
class RunLog:
    """Writes the log of all runs."""

    level: Level
    writer: BlockWriter
    whole_output: bool
    """Whether a run's whole output is printed again at its end."""
    logged: log.Once = field(default_factory=log.Once, compare=False)
    """Missing rights of runs that succeeded."""

    def start(self, job: Job, request: ReconcileRequest) -> LoggedRun:
        """Log the start of a run."""
        return LoggedRun(self, job, request)


class LoggedRun:
    """Log of one run."""

    def __init__(self, settings: RunLog, job: Job, request: ReconcileRequest) -> None:
        self._settings = settings
        self._job = job
        self._output: list[str] = []
        self._reason = request.reason.value
        self._whose = {"job": job.ident, "gvk": str(job.gvk), **job.key._asdict()}
        self._log = log.get(__name__, **self._whose)
        content = content_name(job.content)
        self._log.info(
            "Run started",
            verbosity=job.verbosity,
            reason=self._reason,
            details=list(request.details) or None,
            content=content,
            waited=round(request.waited, 6),
            failures=request.failures,
        )

    def event(self, event: Event) -> None:
        """Record one event of ansible-runner."""
        if self._settings.whole_output and event.get("stdout"):
            self._output.append(event["stdout"])
        for text in (block(event, self._settings.level, raised=self._job.raised), self._recap(event)):
            if text is not None:
                self._settings.writer.write(self._heading(event) + text)

    def end(self, result: RunResult, api: RunStats) -> None:
        """Log the end of the run."""
        self._log_missing_rights(api, result)
        for failure in result.failures:
            self._log.error("Task failed", task=failure.task, path=failure.path or None, error=failure.message)
        if self._output:
            # Masked again: some secret values were not known yet when this output was first written.
            self._settings.writer.write("\n".join([*self._output, ""]), through=self._masked)
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
            tasks=result.executions.totals or None,
            error=result.message or None,
        )

    def _masked(self, text: str) -> str:
        """Mask a large text in the thread of the writer."""
        return attributable(self._job.secrets.masker.text(text, Budget(_WHOLE_OUTPUT)))

    def _log_missing_rights(self, api: RunStats, result: RunResult) -> None:
        for sentence in api.forbidden():
            if result.outcome is not Outcome.SUCCEEDED:
                self._log.error("A run lacks a right; add the rule", error=sentence)
            elif self._settings.logged.is_new(sentence):
                self._log.warning("A run succeeded without a right that it requested; add the rule", problem=sentence)

    def _heading(self, event: Event) -> str:
        """Return the log line that names the object of the next block."""
        data = event.get("event_data")
        task = data.get("task") if isinstance(data, dict) else None
        about = {"task": task} if task else {}
        return log.line(__name__, "Task output", **self._whose, **about)

    def _recap(self, event: Event) -> str | None:
        if self._settings.level == "nothing":
            return None
        return recap_block(event, self._job.gvk, self._job.key)
