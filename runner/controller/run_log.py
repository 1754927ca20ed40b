"""What a run leaves in the log: its blocks on standard output, and a line when it begins and ends.

Blocks are the task output that `kubectl logs -c manager` users know; a line before each, written with it, says whose it
is. The lines carry `job`, `gvk`, `name` and `namespace`; failed tasks get a line each, with the task's file and line.
Rights that a run lacked are told with each failure, and once where runs do without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runner import log
from runner.engine.blocks import BlockWriter, Level, block, recap_block
from runner.engine.job import Event, Job, Outcome, RunResult
from runner.proxy.identity import RunStats
from runner.watches.watch import content_name
from runner.workqueue.request import Request


class RunRecord(Protocol):
    """What somebody keeps of one run."""

    def event(self, event: Event) -> None:
        """Take in one event of ansible-runner."""
        ...

    def end(self, result: RunResult, api: RunStats) -> None:
        """Take in how it ended; is not called where the operator gives the run up, or ends."""
        ...


class RunRecorder(Protocol):
    """Keeps something of runs."""

    def start(self, job: Job, request: Request) -> RunRecord:
        """Take in that a run starts, and why."""
        ...


@dataclass(frozen=True, slots=True)
class RunRecorders:
    """Several, as one."""

    each: Sequence[RunRecorder]

    def start(self, job: Job, request: Request) -> RunRecord:
        """Tell each."""
        return _RunRecords([recorder.start(job, request) for recorder in self.each])


@dataclass(frozen=True, slots=True)
class _RunRecords:
    each: Sequence[RunRecord]

    def event(self, event: Event) -> None:
        for record in self.each:
            record.event(event)

    def end(self, result: RunResult, api: RunStats) -> None:
        for record in self.each:
            record.end(result, api)


@dataclass(frozen=True, slots=True)
class RunLog:
    """Makes the record of each run."""

    level: Level
    writer: BlockWriter
    whole_output: bool
    """Whether a run's whole output is printed once more when it ends."""
    logged: log.Once = field(default_factory=log.Once, compare=False)
    """Missing rights of runs that succeeded."""

    def start(self, job: Job, request: Request) -> LoggedRun:
        """Say that a run starts, and why."""
        return LoggedRun(self, job, request)


class LoggedRun:
    """One run's part of the log."""

    def __init__(self, settings: RunLog, job: Job, request: Request) -> None:
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
        """Take in one event of ansible-runner."""
        if self._settings.whole_output and event.get("stdout"):
            self._output.append(event["stdout"])
        for text in (block(event, self._settings.level), self._recap(event)):
            if text is not None:
                self._settings.writer.write(self._heading(event) + text)

    def end(self, result: RunResult, api: RunStats) -> None:
        """Say how the run ended."""
        for failure in result.failures:
            self._log.error("Task failed", task=failure.task, path=failure.path or None, error=failure.message)
        self._tell_refusals(api, result)
        if self._output:
            # Once more: by now values are known that were not when the first of this was shown.
            self._settings.writer.write("\n".join([*self._output, ""]), through=self._job.secrets.masker.text)
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

    def _tell_refusals(self, api: RunStats, result: RunResult) -> None:
        for sentence in api.forbidden():
            if result.outcome is not Outcome.SUCCEEDED:
                self._log.error("A run lacks a right; add the rule", error=sentence)
            elif self._settings.logged.is_new(sentence):
                self._log.warning("A run succeeded without a right that it requested; add the rule", problem=sentence)

    def _heading(self, event: Event) -> str:
        """Say whose the block is that follows."""
        data = event.get("event_data")
        task = data.get("task") if isinstance(data, dict) else None
        about = {"task": task} if task else {}
        return log.line(__name__, "Task output", **self._whose, **about)

    def _recap(self, event: Event) -> str | None:
        if self._settings.level == "nothing":
            return None
        return recap_block(event, self._job.gvk, self._job.key)
