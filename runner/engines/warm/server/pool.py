"""Pool of fork servers: starts, replaces and ends them, and falls back to new interpreters.

Implements `Starter`. Runs that share an environment share a server. If a server dies, the pool replaces it and sends
the unanswered orders to the next one. A server is replaced by a new one if its Ansible is out of date, or after many
runs. If no server can be started, or loads for long, or cannot fork, the run starts a new interpreter. The pool logs
each reason once and retries later. It limits the number of servers, and ends those that are idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from runner.agent import machine
from runner.base import log
from runner.core.engine.processes import MARKER
from runner.core.engine.starter import Started, Starter
from runner.core.engine.wire import PER_RUN, Order
from runner.engines.warm import messages, task_record
from runner.engines.warm.messages import Load
from runner.engines.warm.server.client import ForkError, Server, ServerDiedError, ServerError
from runner.engines.warm.server.slot import Slot

DEFECT = "A shortcut of the warm engine failed and the task took a slower way; report this defect"
_MAX_SERVERS = 4
_MAX_RUNS = 2000
_IDLE = 600.0
_MEMORY_NEEDED = 192 << 20
"""Bytes of memory that must be free for a second server."""
_RETRY_FIRST, _RETRY_LAST = 1.0, 300.0
_RENEW_FIRST, _RENEW_LAST = 10.0, 1800.0
"""Minimum seconds before a server is replaced by one that only preloads more."""
_MANY_RUNS, _FEW_RUNS_DELAY = 5, 20.0
"""A server with fewer runs stays for more seconds: fewer runs gain less than a new server costs."""
_ATTEMPTS = 3
"""Servers that an order is sent to before it starts a new interpreter."""
_LAUNCHES = 2
"""Servers that may die in a row while they load, before the pool drops the preloading of plugins and modules."""
_LOADED_WITHIN = 60.0
"""Seconds that a run waits for a server that loads, before it starts a new interpreter."""
_MIN_LIFETIME = 10.0
"""Minimum lifetime of a server in seconds. If two in a row die sooner, the next one starts after a pause."""


Launcher: TypeAlias = Callable[[Mapping[str, str], Path, Load], Awaitable[Server]]
"""Starts a server: `client.Server.start`."""


class Pool:
    """Starts supervisors from fork servers, or from `cold` if that fails."""

    def __init__(
        self,
        folder: Path,
        cold: Starter,
        without: Iterable[str],
        launcher: Launcher,
        on_server_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the pool. `on_server_loss` is called when a server died or cannot be started."""
        self.started_runs = 0
        """Number of forked runs."""
        self._on_server_loss = on_server_loss
        self._folder = folder
        self._launcher = launcher
        self._cold = cold
        self._without = sorted(without)
        self._slots: dict[frozenset[tuple[str, str]], Slot] = {}
        self._log = log.get(__name__)
        self._logged = log.Once()
        self._reported = log.Once()
        self._closed = False
        self._background: set[asyncio.Task[None]] = set()
        self._servers: set[Server] = set()
        self._starting: set[asyncio.Task[Server]] = set()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def problem(self) -> str | None:
        """Why runs start new interpreters; None if they are forked."""
        return self.lasting_problem(0.0)

    def lasting_problem(self, seconds: float) -> str | None:
        """Return why runs have started new interpreters for at least this time; else None."""
        before = _now() - seconds
        troubled = [slot for slot in self._slots.values() if slot.trouble and slot.since <= before]
        return troubled[0].trouble if troubled else None

    def servers(self) -> list[int]:
        """Return the pids of the servers that are ready."""
        return [slot.server.pid for slot in self._slots.values() if slot.server]

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start a supervisor with exactly this environment. Raises `OSError` if no process can be started."""
        slot = self._slot(environment)
        for _ in range(_ATTEMPTS):
            try:
                server = await self._ready_server(slot)
                started = await server.run(order, environment, self._without)
            except ServerDiedError:
                continue  # send the order to another server
            except ServerError as error:
                self._log_trouble(slot, str(error))
                if isinstance(error, ForkError):
                    self._record_failure(slot, str(error))
                break
            else:
                self.started_runs += 1
                if slot.renewing and server.runs >= _MANY_RUNS and _now() >= slot.renew_at:
                    slot.renew_now.set()
                return started
        return await self._cold.start(order, environment)

    def learn(self, environment: Mapping[str, str], lines: str, ident: str) -> None:
        """Preload the modules that a run loaded for later runs with its environment. `lines` are its notes.

        Log the defects of shortcuts in the notes. `ident` is the name of the run.
        """
        for defect in task_record.defects(lines):
            if self._reported.is_new(defect):
                self._log.error(DEFECT, job=ident, traceback=defect)
        self.preload(environment, Load.of_lines(lines))
        if reason := messages.mismatch(lines):
            slot = self._slot(environment)
            self._log_trouble(slot, reason, mismatch=True)

    def preload(self, environment: Mapping[str, str], load: Load) -> None:
        """Preload this for an environment. A server that is running is replaced."""
        slot = self._slot(environment)
        if not slot.may_extend or slot.load | load == slot.load:
            return
        slot.load |= load
        if slot.server and slot.renewing is None and not self._closed:
            slot.renewing = self._in_background(self._renew(slot))

    async def settle(self) -> None:
        """Wait until the servers have preloaded the plugins and modules of all runs so far."""
        while waiting := [slot for slot in self._slots.values() if slot.renewing]:
            for slot in waiting:
                slot.renew_now.set()
            await asyncio.wait([slot.renewing for slot in waiting if slot.renewing])

    async def warm_up(self, environment: Mapping[str, str]) -> None:
        """Start the server for an environment before it is needed."""
        slot = self._slot(environment)
        try:
            await self._ready_server(slot)
        except ServerError as error:
            self._log_trouble(slot, str(error))

    async def close(self) -> None:
        """End the servers. Runs in progress continue."""
        self._closed = True
        if self._idle:
            self._idle.cancel()
        renewals = (task for slot in self._slots.values() for task in (slot.renewing, slot.retrying) if task)
        tasks: list[asyncio.Task[Any]] = [*renewals, *self._starting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Not only the servers of slots: a slot that was dropped while its server started may still get one.
        await asyncio.gather(*(server.close() for server in list(self._servers)))
        if self._background:
            await asyncio.wait(self._background)
        self._slots.clear()

    def _slot(self, environment: Mapping[str, str]) -> Slot:
        shared = {**environment, **dict.fromkeys(PER_RUN, "")}
        shared.pop(MARKER, None)  # the marker identifies processes of runs
        slot = self._slots.setdefault(frozenset(shared.items()), Slot(shared))
        slot.used_at = _now()
        if len(self._slots) > 1 and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._end_idle)
        return slot

    def _end_idle(self) -> None:
        """End idle servers, except the one that was used last."""
        self._idle = None
        *idle_slots, _ = sorted(self._slots.values(), key=_last_use)
        for slot in idle_slots:
            if _now() - slot.used_at >= _IDLE and not slot.starting:
                self._in_background(self._drop(slot))
        if len(self._slots) > 1:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._end_idle)

    async def _ready_server(self, slot: Slot) -> Server:
        """Return the slot's server, alive and up to date. Start it if necessary. Raises `ServerError`."""
        server = slot.server
        if server and await server.is_current():
            slot.problem = ""
            if server.runs >= _MAX_RUNS and not self._closed and _now() >= slot.retry_at:
                slot.renewing = slot.renewing or self._in_background(self._renew(slot))
                slot.renew_now.set()
            return server
        if self._closed:
            raise ServerError("the operator is shutting down")
        if _now() < slot.retry_at:
            raise ServerError(slot.failure)
        try:
            async with asyncio.timeout(_LOADED_WITHIN):
                return await asyncio.shield(self._replace(slot))
        except TimeoutError:
            raise ServerError(f"the fork server loads for more than {_LOADED_WITHIN:g} seconds") from None

    def _replace(self, slot: Slot) -> asyncio.Task[Server]:
        """Start a new server for a slot. Concurrent callers share the task."""
        if slot.starting is None:
            # The slot may have been dropped in the meantime.
            self._slots.setdefault(frozenset(slot.environment.items()), slot)
            slot.starting = asyncio.create_task(self._start(slot))
            slot.starting.add_done_callback(_mark_retrieved)
            self._starting.add(slot.starting)
            slot.starting.add_done_callback(self._starting.discard)
        return slot.starting

    async def _start(self, slot: Slot) -> Server:
        try:
            await self._evict(slot)
            server = await self._launch(slot)
        except ServerError as error:
            self._record_failure(slot, str(error))
            raise
        finally:
            slot.starting = None
        old, slot.server = slot.server, server
        slot.failures, slot.retry_at, slot.problem, slot.mismatch = 0, 0.0, "", ""
        slot.renew_at = max(slot.renew_at, _now() + _RENEW_FIRST)
        if old:
            self._in_background(old.close())
        self._servers.add(server)
        self._in_background(self._watch(slot, server))
        self._report(server)
        self._log.debug("Fork server is ready", pid=server.pid)
        return server

    def _report(self, server: Server) -> None:
        """Log what the self-test of a server found."""
        for reason in dict.fromkeys(server.disabled.values()):
            names = ", ".join(name for name, why in server.disabled.items() if why == reason)
            if self._reported.is_new((names, reason)):
                self._log.warning(
                    "A shortcut of the warm engine failed its self-test and is disabled; runs take longer",
                    shortcut=names,
                    reason=reason,
                )
        for problem in server.problems:
            if self._reported.is_new(problem):
                self._log.warning("The self-test of the warm engine found a problem", problem=problem)

    def shortfalls(self) -> dict[str, str]:
        """Return the findings of the self-tests of the servers that are ready, by the shortcut's name."""
        findings: dict[str, str] = {}
        for server in (slot.server for slot in self._slots.values() if slot.server):
            findings |= {name: f"disabled: {reason}" for name, reason in server.disabled.items()}
            if server.problems:
                findings["self-test"] = "; ".join(server.problems)
        return findings

    async def _launch(self, slot: Slot) -> Server:
        problem = ServerError("no fork server was started")
        for _ in range(_LAUNCHES):
            try:
                return await self._attempt(slot)
            except ServerDiedError as error:
                problem = error  # the cause may be a signal, not the preloading
            except ServerError as error:
                problem = error
                break
        if slot.load == Load():
            raise problem
        # The culprit is unknown, so nothing is preloaded any more.
        self._log.warning(
            "The fork server cannot preload the plugins and modules of earlier runs; runs take longer",
            reason=str(problem),
        )
        slot.load, slot.may_extend = Load(), False
        return await self._attempt(slot)

    async def _attempt(self, slot: Slot) -> Server:
        try:
            load = replace(slot.load, off=frozenset(self._without))
            return await self._launcher(slot.environment, self._folder, load)
        except ServerError:
            self._on_server_loss()
            raise

    async def _watch(self, slot: Slot, server: Server) -> None:
        """Replace the server when it dies, so that the next run need not wait."""
        try:
            how = await server.wait_for_death()
        finally:
            self._servers.discard(server)
        if how:
            self._on_server_loss()
        if slot.server is not server:
            return
        slot.server = None
        if not how or self._closed:
            return
        self._log.warning("The fork server died and is replaced", how=how)
        slot.early_deaths = slot.early_deaths + 1 if time.monotonic() - server.started_at < _MIN_LIFETIME else 0
        if slot.early_deaths > 1:
            self._log_trouble(slot, reason := f"the fork server died soon after its start ({how})")
            self._record_failure(slot, reason)
        else:
            await self.warm_up(slot.environment)

    async def _renew(self, slot: Slot) -> None:
        """Replace a server that has started many runs, or by one that preloads more. The intervals double."""
        try:
            await self._await_renewal(slot)
            slot.renew_at = _now() + min(_RENEW_FIRST * 2**slot.renewals, _RENEW_LAST)
            slot.renewals += 1
            await self._exchange(slot)
        finally:
            slot.renewing = None
            slot.renew_now.clear()  # here: a run that began while the new server loaded may have set it

    async def _exchange(self, slot: Slot) -> None:
        """Replace a server that serves runs meanwhile, and afterwards if the new one cannot be started."""
        if _now() < slot.retry_at:
            return  # `_retry` does it after the pause
        try:
            await asyncio.shield(self._replace(slot))
        except ServerError as error:
            if slot.server and await slot.server.is_current():
                self._log_once("A fork server cannot be replaced; runs are forked from the old one", str(error))
            else:
                self._log_trouble(slot, str(error))

    async def _await_renewal(self, slot: Slot) -> None:
        for delay in (0.0, _FEW_RUNS_DELAY):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(slot.renew_at + delay - _now()):
                    await slot.renew_now.wait()
                    return
            if slot.server and slot.server.runs >= _MANY_RUNS:
                return

    async def _evict(self, slot: Slot) -> None:
        """End idle servers above the limit, and more than one only while enough memory is free."""
        idle = (other for other in self._slots.values() if other.server and other is not slot and not other.starting)
        idle_slots = sorted(idle, key=_last_use)
        while idle_slots and (len(idle_slots) >= _MAX_SERVERS or machine.free_memory(Path("/")) < _MEMORY_NEEDED):
            await self._drop(idle_slots.pop(0))

    async def _drop(self, slot: Slot) -> None:
        server, slot.server = slot.server, None
        for task in (slot.renewing, slot.retrying):
            if task and task is not asyncio.current_task():
                task.cancel()
        for key in [key for key, other in self._slots.items() if other is slot]:
            del self._slots[key]
        if server:
            await server.close()

    def _record_failure(self, slot: Slot, reason: str) -> None:
        """Record that no server could be started, or that one cannot serve, and start one after a pause."""
        if self._closed or _now() < slot.retry_at:
            return
        slot.failures += 1
        slot.failure = reason
        slot.retry_at = _now() + min(_RETRY_FIRST * 2 ** (slot.failures - 1), _RETRY_LAST)
        slot.retrying = self._in_background(self._retry(slot))

    async def _retry(self, slot: Slot) -> None:
        """Make the next attempt when the pause is over, also without a run."""
        await asyncio.sleep(slot.retry_at - _now())
        slot.retrying = None
        if slot.failures and any(other is slot for other in self._slots.values()):
            await self._exchange(slot)

    def _log_trouble(self, slot: Slot, reason: str, *, mismatch: bool = False) -> None:
        """Record why runs are not forked."""
        if self._closed:
            return
        slot.since = slot.since if slot.trouble else _now()
        if mismatch:
            slot.mismatch = reason
        else:
            slot.problem = reason
        self._log_once("Runs are not forked from a fork server; they start new interpreters and take longer", reason)

    def _log_once(self, message: str, reason: str) -> None:
        if self._logged.is_new((message, reason)):
            self._log.warning(message, reason=reason)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()


def _last_use(slot: Slot) -> float:
    return slot.used_at


def _mark_retrieved(task: asyncio.Task[Server]) -> None:
    """Mark the exception of a task as retrieved. Its waiters get it."""
    if not task.cancelled():
        task.exception()
