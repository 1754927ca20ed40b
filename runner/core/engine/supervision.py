"""The operator's side of a supervisor (`child.py`): start it, read its frames, end it and clean up.

Promises: frames are read in order and one at a time. A slow reader slows Ansible down, and the use of memory is
bounded. If the supervisor is killed, `sweep` ends the processes that it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Collection
from typing import Any

import orjson

from runner.agent import process_tree
from runner.agent.process_tree import Process
from runner.base.config import shortages
from runner.core.engine import processes
from runner.core.engine.run_dir import TEMPORARY, RunFolder
from runner.core.engine.starter import Started, Starter
from runner.core.engine.wire import GRACE, HEADER, STOP, ChildEnd, Kind, Order

_STDERR_KEPT = 8192
_KILL_WITHIN = 10.0
_REAP_FOR, _REAP_EVERY = 20.0, 0.5
"""Seconds."""
_STOP_WITHIN = GRACE + 5.0
"""Seconds that a supervisor has to end a run on request. Then it is killed with everything below it."""


class Supervision:
    """One supervisor."""

    def __init__(self, process: Started, supervisor: Process | None, identity: str) -> None:
        """`supervisor` is the state of `process` at its start; None if it had ended already."""
        self._process = process
        self._supervisor = supervisor
        self._identity = identity
        self._complaint = b""
        self._stderr = asyncio.create_task(self._read_stderr())
        self.ending: ChildEnd | None = None
        """How ansible-playbook ended; None until then, and permanently if the supervisor died first."""

    @classmethod
    async def start(cls, starter: Starter, folder: RunFolder, identity: str, memory: int) -> Supervision:
        """Start a run that may use `memory` bytes.

        Raises:
            OSError: no process could be started.
        """
        order = Order(
            run_dir=str(folder.path),
            ident=folder.ident,
            playbook=str(folder.playbook),
            inventories=[str(path) for path in folder.inventories],
            verbosity=folder.verbosity,
            ansible_args=folder.ansible_args,
            kubeconfig=str(folder.kubeconfig),
            temporary=str(folder.path / TEMPORARY),
            memory=memory,
            facts=str(folder.path / folder.facts) if folder.facts else "",
        )
        started = await starter.start(order, folder.environment)
        try:
            supervisor = await shortages.outlast(process_tree.read, started.pid)
        except BaseException:
            started.control.close()  # ends the supervisor and its run
            raise
        return cls(started, supervisor, identity)

    @property
    def pid(self) -> int:
        """Pid of the supervisor, which leads its session."""
        return self._process.pid

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the events until the supervisor has ended. Then `ending` is set if the supervisor reported it."""
        stream = self._process.events
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
                self.ending = ChildEnd(**value)
            await asyncio.sleep(0)
        await self._stderr

    def request_stop(self) -> None:
        """Request that the supervisor ends the run."""
        self._send(STOP)

    async def kill(self) -> None:
        """Kill the supervisor and everything below it.

        Raises:
            OSError: the remaining processes are unknown.
        """
        await shortages.outlast(processes.kill, self._identity, self._supervisor, _KILL_WITHIN)

    async def sweep(self, known: Collection[int]) -> tuple[str, bool]:
        """Wait for the supervisor and end the processes that it left.

        `known` are the pids of all supervisors. Returns how the supervisor ended (empty for a clean exit), and True if
        no process is left.
        """
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            code = await self._process.wait()
        if self.ending is not None and self.ending.alone:
            return self._how(code), True
        gone = await shortages.outlast(processes.kill, self._identity, self._supervisor, _KILL_WITHIN)
        await shortages.outlast(_reap_found_orphans, known)
        return self._how(code), gone

    def _how(self, code: int | None) -> str:
        if self.ending is not None:
            return ""
        if code is None:
            return "ended with an unknown exit code"
        if code < 0:
            return f"was killed by {signal_name(-code)}"
        last = self._complaint.decode(errors="replace").strip().rpartition("\n")[2]
        return f"ended with exit code {code}" + (f": {last}" if last else "")

    def _send(self, line: bytes) -> None:
        self._process.control.write(line)

    async def _read_stderr(self) -> None:
        while part := await self._process.complaints.read(_STDERR_KEPT):
            self._complaint = (self._complaint + part)[-_STDERR_KEPT:]


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGKILL`; its number if it has no name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # NaN and infinity, which Ansible can write


async def reap_orphans(known: Collection[int]) -> None:
    """Reap the processes that a dead starter of supervisors left, for some time, such as a run that it was starting.

    `known` are the pids of all supervisors; the collection may change meanwhile.
    """
    deadline = time.monotonic() + _REAP_FOR
    while time.monotonic() < deadline:
        await asyncio.sleep(_REAP_EVERY)
        if processes.has_dead_children():
            with contextlib.suppress(OSError):  # file descriptors ran out: retry at the next interval
                await asyncio.to_thread(_reap_found_orphans, known)


def _reap_found_orphans(known: Collection[int]) -> None:
    """Reap the children that a dead supervisor left: zombies that two consecutive checks find.

    Code that starts a child in this process waits for it, and reaps it earlier.
    """
    deadline = time.monotonic() + _KILL_WITHIN
    before = processes.orphaned_zombies(known)
    while before and time.monotonic() < deadline:
        time.sleep(0.1)
        now = processes.orphaned_zombies(known)
        processes.reap(before & now)
        before = now - before
