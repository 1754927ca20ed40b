"""The operator's end of fork servers: which there are, when one is replaced, and what happens when one is not there.

Promises what `starter.Starter` promises. Runs that share an environment share a server. A server that dies is replaced,
and the orders that it had not answered go to the next one; one whose Ansible is out of date, or that has served many
runs, is replaced once another is ready. Where no server can be had, the run goes the cold way; the log says why, once
for each reason, and another attempt is made later. Servers are few, and those that nobody uses end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from runner import log
from runner.config import machine
from runner.engine.processes import MARKER
from runner.engine.starter import Started, Starter
from runner.engine.warm import messages
from runner.engine.warm.messages import Load
from runner.engine.warm.server.client import Server, ServerDiedError, ServerError
from runner.engine.wire import PER_RUN, Order

_MOST_SERVERS = 4
_MOST_RUNS = 2000
_IDLE = 600.0
_NEEDED = 192 << 20
"""Bytes of memory that must be free for one more server than one."""
_RETRY_FIRST, _RETRY_LAST = 1.0, 300.0
_RENEW_FIRST, _RENEW_LAST = 10.0, 1800.0
"""Seconds that a server serves at least before another takes its place that differs only in what was learned."""
_ATTEMPTS = 3
"""Servers that an order is given to before it goes the cold way."""
_LAUNCHES = 2
"""Servers that may die while they load, one after the other, before what they load is held to be the reason."""
_TOO_SHORT = 10.0
"""Seconds that a server lives at least; where one after another dies sooner, they are not replaced at once."""


Launcher: TypeAlias = Callable[[Mapping[str, str], Path, Load], Awaitable[Server]]
"""Starts a server: `client.Server.start`."""


@dataclass
class _Slot:
    """The place of the server for one environment."""

    environment: Mapping[str, str]
    server: Server | None = None
    starting: asyncio.Task[Server] | None = None
    learned: Load = field(default_factory=Load)
    learns: bool = True
    renewing: asyncio.Task[None] | None = None
    renew_at: float = 0.0
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody waits for what was learned to be loaded."""
    renewals: int = 0
    early_deaths: int = 0
    failures: int = 0
    retry_at: float = 0.0
    problem: str = ""
    """Why there is no server that is up to date."""
    unlike: str = ""
    """Why runs cannot be forked from it."""
    since: float = 0.0
    """When there began to be a problem."""
    retrying: asyncio.Task[None] | None = None
    used_at: float = 0.0

    @property
    def trouble(self) -> str:
        """Why runs with this environment go the cold way; empty when they do not."""
        return self.problem or self.unlike


class Pool:
    """Starts supervisors from fork servers; from `cold` where that fails."""

    def __init__(
        self,
        folder: Path,
        cold: Starter,
        without: Iterable[str],
        launcher: Launcher,
        bereaved: Callable[[], None] = lambda: None,
    ) -> None:
        """`bereaved` is called when a server has ended otherwise than by being closed, or could not be had."""
        self.begun = 0
        """Runs that were forked."""
        self._bereaved = bereaved
        self._folder = folder
        self._launcher = launcher
        self._cold = cold
        self._without = sorted(without)
        self._slots: dict[frozenset[tuple[str, str]], _Slot] = {}
        self._log = log.get(__name__)
        self._logged = log.Once()
        self._reported = log.Once()
        self._closed = False
        self._background: set[asyncio.Task[None]] = set()
        self._living: set[Server] = set()
        self._starting: set[asyncio.Task[Server]] = set()
        self._idle: asyncio.TimerHandle | None = None

    @property
    def problem(self) -> str | None:
        """Why runs go the cold way; None when they do not."""
        return self.lasting_problem(0.0)

    def lasting_problem(self, seconds: float) -> str | None:
        """Why runs go the cold way, if they have for so long; else None."""
        before = _now() - seconds
        troubled = [slot for slot in self._slots.values() if slot.trouble and slot.since <= before]
        return troubled[0].trouble if troubled else None

    def servers(self) -> list[int]:
        """Return the pids of the servers that are ready."""
        return [slot.server.pid for slot in self._slots.values() if slot.server]

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        """Start a supervisor with exactly this environment. An `OSError` says that no process could be started."""
        slot = self._slot(environment)
        for _ in range(_ATTEMPTS):
            try:
                server = await self._ready(slot)
                started = await server.run(order, environment, self._without)
            except ServerDiedError:
                continue  # another one gets the order
            except ServerError as error:
                self._failed(slot, str(error))
                break
            else:
                self.begun += 1
                return started
        return await self._cold.start(order, environment)

    def learn(self, environment: Mapping[str, str], lines: str) -> None:
        """Take note of what a run loaded; the server for its environment loads it ahead from now on."""
        self.load_ahead(environment, Load.of_lines(lines))
        if reason := messages.unlike(lines):
            slot = self._slot(environment)
            self._tell(slot, reason)
            slot.unlike = reason

    def load_ahead(self, environment: Mapping[str, str], wanted: Load) -> None:
        """Have this loaded ahead for an environment, by another server if there is one already."""
        slot = self._slot(environment)
        if not slot.learns or slot.learned | wanted == slot.learned:
            return
        slot.learned |= wanted
        if slot.server and slot.renewing is None and not self._closed:
            slot.renewing = self._do(self._renew(slot))

    async def settle(self) -> None:
        """Wait until what runs have shown so far is loaded ahead."""
        while waiting := [slot for slot in self._slots.values() if slot.renewing]:
            for slot in waiting:
                slot.hurried.set()
            await asyncio.wait([slot.renewing for slot in waiting if slot.renewing])

    async def warm_up(self, environment: Mapping[str, str]) -> None:
        """Start the server for an environment before it is needed."""
        slot = self._slot(environment)
        try:
            await self._ready(slot)
        except ServerError as error:
            self._failed(slot, str(error))

    async def close(self) -> None:
        """End the servers. Runs that go on do so."""
        self._closed = True
        if self._idle:
            self._idle.cancel()
        others = (task for slot in self._slots.values() for task in (slot.renewing, slot.retrying) if task)
        begun: list[asyncio.Task[Any]] = [*others, *self._starting]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        # Not only those of the slots: one that was dropped while another server was started for it may have that one.
        await asyncio.gather(*(server.close() for server in list(self._living)))
        if self._background:
            await asyncio.wait(self._background)
        self._slots.clear()

    def _slot(self, environment: Mapping[str, str]) -> _Slot:
        shared = {**environment, **dict.fromkeys(PER_RUN & environment.keys(), "")}
        shared.pop(MARKER, None)  # a server is no run, and not looked for as one
        slot = self._slots.setdefault(frozenset(shared.items()), _Slot(shared))
        slot.used_at = _now()
        if len(self._slots) > 1 and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._end_idle)
        return slot

    def _end_idle(self) -> None:
        """End what nobody used for long; the one that was used last stays for the next run."""
        self._idle = None
        *others, _ = sorted(self._slots.values(), key=_last_use)
        for slot in others:
            if _now() - slot.used_at >= _IDLE and not slot.starting:
                self._do(self._drop(slot))
        if len(self._slots) > 1:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._end_idle)

    async def _ready(self, slot: _Slot) -> Server:
        """Return the slot's server, current and alive, started if need be."""
        server = slot.server
        if server and await server.is_current():
            slot.problem = ""
            if server.runs >= _MOST_RUNS and not self._closed:
                self._replace(slot)  # meanwhile it serves on
            return server
        if self._closed:
            raise ServerError("the operator is shutting down")
        if _now() < slot.retry_at:
            raise ServerError(slot.problem)
        return await asyncio.shield(self._replace(slot))

    def _replace(self, slot: _Slot) -> asyncio.Task[Server]:
        """Start another server; all who need it wait for the same one."""
        if slot.starting is None:
            # It may have been dropped since it was found, and is needed again.
            self._slots.setdefault(frozenset(slot.environment.items()), slot)
            slot.starting = asyncio.create_task(self._start(slot))
            slot.starting.add_done_callback(_retrieve)
            self._starting.add(slot.starting)
            slot.starting.add_done_callback(self._starting.discard)
        return slot.starting

    async def _start(self, slot: _Slot) -> Server:
        try:
            await self._make_room(slot)
            server = await self._launch(slot)
        finally:
            slot.starting = None
        old, slot.server = slot.server, server
        slot.failures, slot.retry_at, slot.problem, slot.unlike = 0, 0.0, "", ""
        slot.renew_at = max(slot.renew_at, _now() + _RENEW_FIRST)
        if old:
            self._do(old.close())
        self._living.add(server)
        self._do(self._watch(slot, server))
        self._report(server)
        self._log.debug("Fork server is ready", pid=server.pid)
        return server

    def _report(self, server: Server) -> None:
        """Log what the self-test of a server found."""
        for name, reason in server.disabled.items():
            if self._reported.is_new((name, reason)):
                self._log.warning(
                    "A shortcut of the warm engine failed its self-test and is disabled; runs take longer",
                    shortcut=name,
                    reason=reason,
                )
        for problem in server.problems:
            if self._reported.is_new(problem):
                self._log.warning("The self-test of the warm engine found a problem", problem=problem)

    def shortfalls(self) -> dict[str, str]:
        """Return what the self-tests of the servers that are ready found, by the shortcut's name."""
        found: dict[str, str] = {}
        for server in (slot.server for slot in self._slots.values() if slot.server):
            found |= {name: f"disabled: {reason}" for name, reason in server.disabled.items()}
            if server.problems:
                found["self-test"] = "; ".join(server.problems)
        return found

    async def _launch(self, slot: _Slot) -> Server:
        problem = ServerError("none was started")
        for _ in range(_LAUNCHES):
            try:
                return await self._attempt(slot)
            except ServerDiedError as error:
                problem = error  # somebody may have ended it, which says nothing of what it was to load
            except ServerError as error:
                problem = error
                break
        if slot.learned == Load():
            raise problem
        # Which one of them cannot be loaded ahead is not known, so none is.
        self._log.warning("What runs needed cannot be loaded ahead", reason=str(problem))
        slot.learned, slot.learns = Load(), False
        return await self._attempt(slot)

    async def _attempt(self, slot: _Slot) -> Server:
        try:
            wanted = replace(slot.learned, off=frozenset(self._without))
            return await self._launcher(slot.environment, self._folder, wanted)
        except ServerError:
            self._bereaved()
            raise

    async def _watch(self, slot: _Slot, server: Server) -> None:
        """Replace a server that dies, so that the next run need not wait for it."""
        try:
            how = await server.died()
        finally:
            self._living.discard(server)
        if how:
            self._bereaved()
        if slot.server is not server:
            return
        slot.server = None
        if not how or self._closed:
            return
        self._log.warning("The fork server died and is replaced", how=how)
        slot.early_deaths = slot.early_deaths + 1 if time.monotonic() - server.started_at < _TOO_SHORT else 0
        if slot.early_deaths > 1:
            self._failed(slot, f"the fork server died soon after its start ({how})")
        else:
            await self.warm_up(slot.environment)

    async def _renew(self, slot: _Slot) -> None:
        """Replace a server by one that has loaded what was learned; ever more seldom, as runs differ for ever."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(slot.renew_at - _now()):
                    await slot.hurried.wait()
            slot.hurried.clear()
            slot.renew_at = _now() + min(_RENEW_FIRST * 2**slot.renewals, _RENEW_LAST)
            slot.renewals += 1
            await self._replace(slot)
        except ServerError as error:
            self._failed(slot, str(error))
        finally:
            slot.renewing = None

    async def _make_room(self, slot: _Slot) -> None:
        """Keep servers few: more than one only while there is memory for it."""
        idle = (each for each in self._slots.values() if each.server and each is not slot and not each.starting)
        others = sorted(idle, key=_last_use)
        while others and (len(others) >= _MOST_SERVERS or machine.free_memory(Path("/")) < _NEEDED):
            await self._drop(others.pop(0))

    async def _drop(self, slot: _Slot) -> None:
        server, slot.server = slot.server, None
        for task in (slot.renewing, slot.retrying):
            if task and task is not asyncio.current_task():
                task.cancel()  # nobody needs another server for it
        for key in [key for key, each in self._slots.items() if each is slot]:
            del self._slots[key]
        if server:
            await server.close()

    def _failed(self, slot: _Slot, reason: str) -> None:
        """Note that there is no server; once for each attempt, however many runs have waited for it."""
        if self._closed or _now() < slot.retry_at:
            return
        slot.failures += 1
        slot.retry_at = _now() + min(_RETRY_FIRST * 2 ** (slot.failures - 1), _RETRY_LAST)
        self._tell(slot, reason)
        slot.problem = reason
        slot.retrying = self._do(self._try_again(slot))

    async def _try_again(self, slot: _Slot) -> None:
        """Make the next attempt, whether or not there are runs: what was wrong may have been put right."""
        await asyncio.sleep(slot.retry_at - _now())
        slot.retrying = None
        if all(each is not slot for each in self._slots.values()):
            return
        try:
            await self._ready(slot)
        except ServerError as error:
            self._failed(slot, str(error))

    def _tell(self, slot: _Slot, reason: str) -> None:
        slot.since = slot.since if slot.trouble else _now()
        if self._logged.is_new(reason):
            self._log.warning(
                "Runs are started the slow way, not forked from a server that has Ansible loaded", reason=reason
            )

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()


def _last_use(slot: _Slot) -> float:
    return slot.used_at


def _retrieve(task: asyncio.Task[Server]) -> None:
    """See to it that nobody calls an error lost that those who wait have got, or would get."""
    if not task.cancelled():
        task.exception()
