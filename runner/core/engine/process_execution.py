"""Execution of a run in processes of the operator: a supervisor (`child.py`), and Ansible below it.

Promises: frames of the supervisor are read in order and one at a time. A slow reader slows Ansible down, and the use of
memory is bounded. If the supervisor is killed, the processes that it left are ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from runner.agent import machine, process_tree
from runner.agent.process_tree import STUCK_ERROR, Process
from runner.base import log
from runner.base.config import shortages
from runner.core.engine import advice, processes, wire
from runner.core.engine import run_dir as inputdir
from runner.core.engine.events import Progress
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.engine.pipeline import Ending
from runner.core.engine.starter import Started, Starter
from runner.core.engine.wire import GRACE, HEADER, STOP, ChildEnd, Kind, Order

_ROOT = Path("/")
_STOP_WITHIN = 10.0
"""Seconds in which a run ends on request."""
_EXIT_WITHIN = GRACE + 5.0
"""Seconds in which a supervisor ends after its streams. Then it is killed with everything below it."""
_KILL_WITHIN = 10.0
_STDERR_KEPT = 8192
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits and records that the runs of an engine share."""

    memory: int
    """Bytes that all processes of a run may use together; 0 is unlimited."""
    supervisors: set[int]
    """Pids of all supervisors."""


@dataclass(slots=True)
class ProcessExecution:
    """A started supervisor."""

    job: Job
    folder: inputdir.RunFolder
    identity: str
    """Marker of all processes of the run."""
    starter: Starter
    limits: RunLimits
    started: Started
    supervisor: Process | None
    """State of the supervisor at its start; None if it had ended already."""
    kills: int
    """Processes of the container that the kernel had killed before."""
    complaints: asyncio.Task[bytes]
    """Reads the end of the supervisor's standard error."""
    end: ChildEnd | None = None
    """How ansible-playbook ended; None until then, and permanently if the supervisor died first."""
    files: Mapping[str, str] = field(default_factory=dict)
    known: tuple[Event, ...] = ()
    is_swept: bool = False

    @property
    def left(self) -> float | None:
        """Seconds that the run may take."""
        return self.job.deadline

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events until the supervisor has ended. Then `end` is set if the supervisor reported it."""
        stream = self.started.events
        while True:
            try:
                kind, length = HEADER.unpack(await stream.readexactly(HEADER.size))
                body = await stream.readexactly(length)
            except asyncio.IncompleteReadError:
                break
            await asyncio.sleep(0)  # a large frame already took the loop's time
            value = _parse(body)
            if kind == Kind.EVENT:
                yield value
            else:
                self.end = ChildEnd(**value)
            await asyncio.sleep(0)
        await self.complaints

    def shown(self, event: Event) -> None:
        """Do nothing: the supervisor needs no answer."""

    def stop(self) -> float:
        """Request the end of the run."""
        self.started.control.write(STOP)
        return _STOP_WITHIN

    async def kill(self) -> None:
        """Kill the supervisor and everything below it. Raises OSError if the remaining processes are unknown."""
        await self._kill()

    async def ending(self, stopped: Outcome | None, progress: Progress) -> Ending:  # noqa: ARG002 - see Execution
        """End the processes that the supervisor left; return how the run ended."""
        how = _how(await self._sweep(), await self.complaints)
        end = self.end
        return Ending(
            code=end.code if end else None,
            signal=_signal(end),
            fault=_fault(end, how, self.limits.memory),
            stopped=stopped,
            amend=self._amended,
            files={"status": end.status, "rc": str(end.rc)} if end and end.status else {},
            source=self.folder.path / inputdir.TEMPORARY / wire.ARTIFACTS / self.job.ident,
        )

    async def close(self) -> None:
        """End the processes after an error of the operator, and remove what only the run used."""
        try:
            if not self.is_swept:
                await self._kill()
                await self._sweep()
        finally:
            try:
                await shortages.outlast(inputdir.clear, self.folder.path)
            except OSError as error:  # files that a role created as another user, for example; the result is valid
                _log.warning("Cannot remove files that a run left", job=self.job.ident, error=str(error))

    async def _kill(self) -> bool:
        """Kill all processes of the run. Return True if none is left."""
        return await shortages.outlast(processes.kill, self.identity, self.supervisor, _KILL_WITHIN)

    async def _sweep(self) -> int | None:
        """Wait for the supervisor, and end the processes that it left. Return its exit code; None if it is unknown."""
        self.is_swept = True
        try:
            async with asyncio.timeout(_EXIT_WITHIN):
                code = await self.started.wait()
        except TimeoutError:
            await self._kill()
            code = await self.started.wait()
        if self.end is None or not self.end.alone:
            if not await self._kill():
                about = {"job": self.job.ident, "gvk": str(self.job.gvk), **self.job.key._asdict()}
                _log.warning("Cannot end all processes of a run", **about)
            await shortages.outlast(processes.reap_orphans, self.limits.supervisors)
        self.limits.supervisors.discard(self.started.pid)
        if self.end and self.end.learned:
            self.starter.learn(self.folder.environment, self.end.learned, self.job.ident)
        return code

    def _amended(self, result: RunResult) -> RunResult:
        if self.job.inventory is not None:
            result = self.job.inventory.collect(result, self.folder.path / inputdir.TEMPORARY)
        if kills := machine.oom_kills(_ROOT) - self.kills:
            result = advice.add_kills(result, kills, machine.total_memory(_ROOT), self.limits.memory)
        return result


async def start(
    job: Job, folder: inputdir.RunFolder, identity: str, starter: Starter, limits: RunLimits
) -> ProcessExecution:
    """Start a run in a prepared folder. Raises OSError."""
    kills = machine.oom_kills(_ROOT)
    order = Order(
        run_dir=str(folder.path),
        ident=folder.ident,
        playbook=str(folder.playbook),
        inventories=[str(path) for path in folder.inventories],
        verbosity=folder.verbosity,
        ansible_args=folder.ansible_args,
        kubeconfig=str(folder.kubeconfig),
        temporary=str(folder.path / inputdir.TEMPORARY),
        memory=limits.memory,
        facts=str(folder.path / folder.facts) if folder.facts else "",
    )
    started = await starter.start(order, folder.environment)
    try:
        supervisor = await shortages.outlast(process_tree.read, started.pid)
    except BaseException:
        started.control.close()  # ends the supervisor and its run
        raise
    _log.debug("Run's process started", job=job.ident)
    limits.supervisors.add(started.pid)
    complaints = asyncio.create_task(_last_of(started.complaints))
    return ProcessExecution(job, folder, identity, starter, limits, started, supervisor, kills, complaints)


async def _last_of(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end, and return the last part of it."""
    last = b""
    while part := await stream.read(_STDERR_KEPT):
        last = (last + part)[-_STDERR_KEPT:]
    return last


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # NaN and infinity, which Ansible can write


def _how(code: int | None, complaints: bytes) -> str:
    """Return how a supervisor ended that reported no end, as the end of a sentence."""
    if code is None:
        return "ended with an unknown exit code"
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    last = complaints.decode(errors="replace").strip().rpartition("\n")[2]
    return f"ended with exit code {code}" + (f": {last}" if last else "")


def _signal(end: ChildEnd | None) -> str:
    """Return the signal that killed ansible-playbook, unless the supervisor ended it for lack of memory."""
    if end is None or end.memory or end.stuck or not end.signal:
        return ""
    return _signal_name(end.signal)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _fault(end: ChildEnd | None, how: str, limit: int) -> str:
    """Return the problem that prevented or interrupted the run, as the end of a sentence; empty if there was none."""
    if end is None:
        return f"the run's supervisor {how}"
    if end.memory:
        return (
            f"the run was ended because its processes used {end.memory >> 20} MiB of memory together, "
            f"more than --run-memory-limit allows ({limit >> 20} MiB),"
        )
    if end.stuck:
        return STUCK_ERROR
    return f"ansible-runner failed ({end.error})" if end.error else ""
