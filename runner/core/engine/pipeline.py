"""Pipeline of every run, from its execution to its result.

    execution.events → mask → fold → log, Events, page → artifacts → conclude → RunResult

An engine supplies only the execution, such as processes. Promises:

- Nothing after the mask receives a known secret value. A result contains no text that may hold an unknown one.
- An event is folded before the sink receives it. Artifacts do not delay it.
- The execution is closed, and the run folder released, however the run ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from runner.base import log
from runner.core.engine import advice, artifacts, events, redaction
from runner.core.engine.artifact_writer import ArtifactWriter
from runner.core.engine.artifacts import KeptRuns
from runner.core.engine.events import Progress
from runner.core.engine.job import Event, EventSink, Job, Outcome, RunResult, canceled
from runner.values.errors import EngineError

_log = log.get(__name__)


class Stop:
    """A request to end a run, with its reason; the first request counts."""

    def __init__(self) -> None:
        self.requested: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def ask(self, reason: Outcome) -> None:
        """Request the end."""
        if not self.requested.done():
            self.requested.set_result(reason)

    @property
    def reason(self) -> Outcome | None:
        """The reason; None if nothing requested the end."""
        return self.requested.result() if self.requested.done() else None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an execution ended. `code`, `signal` and `fault` are those of `events.End`."""

    code: int | None = None
    signal: str = ""
    fault: str = ""
    stopped: Outcome | None = None
    """Why the operator ended it."""
    canceled: str = ""
    """Why it is repeated without a failure, a sentence."""
    waits: bool = False
    """As in `RunResult`."""
    amend: Callable[[RunResult], RunResult] | None = None
    """Adds the fields of the result that only the engine can set."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Artifacts that contain no output."""
    source: Path | None = None
    """Folder with further artifacts, see `ArtifactWriter.end`."""


class Execution(Protocol):
    """One execution of a job, such as its processes."""

    @property
    def files(self) -> Mapping[str, str]:
        """Artifacts to write before the first event."""
        ...

    @property
    def known(self) -> Iterable[Event]:
        """Events that an earlier operator has passed on."""
        ...

    @property
    def left(self) -> float | None:
        """Remaining seconds; None is unlimited."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """Yield the events until it has ended."""
        ...

    def shown(self, event: Event) -> None:
        """Receive a masked event."""
        ...

    def stop(self) -> float:
        """Request its end; return the seconds in which it should end."""
        ...

    async def kill(self) -> None:
        """End it now; `events` ends too."""
        ...

    async def ending(self, stopped: Outcome | None, progress: Progress) -> Ending:
        """Return how it ended, after its events."""
        ...

    async def close(self) -> None:
        """End what remains, and remove what only the run used. Called once, at last, also after errors."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Runs executions."""

    kept: KeptRuns

    async def run(self, job: Job, begin: Callable[[], Awaitable[Execution]], sink: EventSink, stop: Stop) -> RunResult:
        """Run a job to its end. An exception of `sink` ends the run and is raised here."""
        began = time.monotonic()
        try:
            await asyncio.to_thread(self.kept.begin, job.run_dir)
            execution = await begin()
            try:
                return await _run(job, execution, sink, stop, began)
            finally:
                await execution.close()
        except EngineError as error:
            return not_started(str(error), time.monotonic() - began)
        finally:
            await asyncio.to_thread(self._leave, job)

    def _leave(self, job: Job) -> None:
        try:
            artifacts.rotate(job.run_dir / "artifacts", job.max_artifacts)
        except OSError as error:  # files that a role created as another user, for example; the result is valid
            _log.warning("Cannot remove artifacts of earlier runs", job=job.ident, error=str(error))
        try:
            self.kept.end(job.run_dir, job.max_artifacts)
        except OSError as error:
            _log.warning("Cannot reduce the run folders to the disk limit", job=job.ident, error=str(error))


async def _run(job: Job, execution: Execution, sink: EventSink, stop: Stop, began: float) -> RunResult:
    writer = ArtifactWriter(job, execution.files)
    await writer.begin()
    progress = Progress()
    async for event in redaction.events(_each(execution.known), job.secrets):
        progress = events.fold(progress, event)
    left = execution.left
    timer = asyncio.get_running_loop().call_later(left, stop.ask, Outcome.TIMED_OUT) if left is not None else None
    try:
        progress = await _follow(job, execution, sink, stop, writer, progress)
    finally:
        if timer is not None:
            timer.cancel()
    ending = await execution.ending(stop.reason, progress)
    seconds = time.monotonic() - began
    if ending.canceled:
        result = canceled(ending.canceled, seconds, waits=ending.waits)
    else:
        if job.secrets.is_exhausted:
            progress = events.withheld(progress, job.secrets.withheld)
        result = events.conclude(progress, _end(job, ending, seconds))
        if result.failures:
            result = await asyncio.to_thread(advice.explain, result, job)
        if job.inventory is not None:
            result = job.inventory.explain(result)
    await writer.end(ending.files, ending.source)
    return await redaction.result(ending.amend(result) if ending.amend else result, job.secrets)


def _end(job: Job, ending: Ending, seconds: float) -> events.End:
    end = events.End(ending.stopped, job.deadline, ending.code, ending.signal, ending.fault, seconds)
    return end if job.inventory is None else replace(end, hosts=True, unmatched=job.inventory.unmatched)


async def _each(known: Iterable[Event]) -> AsyncIterator[Event]:
    for event in known:
        yield event
        await asyncio.sleep(0)  # the known events of a long run must not delay others


async def _follow(
    job: Job, execution: Execution, sink: EventSink, stop: Stop, writer: ArtifactWriter, progress: Progress
) -> Progress:
    """Pass the events on until the run ends. Request its end when `stop` does, and kill it if it continues."""

    async def read() -> Progress:
        current = progress
        async for event in redaction.events(execution.events(), job.secrets):
            current = events.fold(current, event)
            sink(event)
            execution.shown(event)
            await writer.add(event)
        return current

    reading = asyncio.create_task(read())
    try:
        either: set[asyncio.Future[Any]] = {reading, stop.requested}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await asyncio.wait({reading}, timeout=execution.stop())
        if not reading.done():
            await execution.kill()
        return await reading
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading})


def not_started(message: str, duration: float = 0.0) -> RunResult:
    """Return the result of a run that could not start."""
    return RunResult(Outcome.NOT_STARTED, None, (), message, None, duration)
