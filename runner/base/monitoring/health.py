"""Health checks with a grace time, and the server of probes.

`/healthz` contains the checks that a restart can fix, `/readyz` all of them. The responses are those of the Kubernetes
components (https://kubernetes.io/docs/reference/using-api/health-checks/): `?verbose` lists each check,
`?exclude=NAME` excludes one, and a path below the probe selects one.

A failing check counts after its grace time, or at once if it has never passed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from runner.base.monitoring import endpoints
from runner.base.monitoring.endpoints import Address

CheckFunction: TypeAlias = Callable[[], str | None]
"""Returns a problem or None."""

GRACE = 15.0
"""Seconds. A new connection, or a rolling update of the API server, takes that long."""
CHECK_INTERVAL = 1.0
"""Seconds."""
PING, LOOP = "ping", "event-loop"
"""Names of built-in checks: the server responds; the event loop is not blocked."""


@dataclass(slots=True)
class _Check:
    function: CheckFunction
    grace: float
    live: bool
    """Whether a restart can fix it, so that `/healthz` contains it."""
    has_passed: bool = False
    failing_since: float = 0.0
    reason: str = ""
    """The problem; empty while the check passes."""

    def run(self, now: float) -> None:
        problem = self.function()
        if problem is None:
            self.has_passed, self.reason = True, ""
            return
        if not self.reason:
            self.failing_since = now
        self.reason = problem

    def problem(self, now: float) -> str | None:
        counts = not self.has_passed or now - self.failing_since >= self.grace
        return self.reason if self.reason and counts else None


Problems: TypeAlias = Mapping[str, str | None]
"""Problem by name of the check; None if it passes."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Results of the checks for each probe."""

    live: Problems
    ready: Problems
    """Contains those of `live`."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Findings that fail no check, by name."""


class HealthChecks:
    """All checks. The event loop calls the methods; other threads can read `report` and `last_run`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._checks: dict[str, _Check] = {}
        self._notes: list[Callable[[], Mapping[str, str]]] = []
        self.last_run = clock()
        """Time of the last run of the checks, by `clock`."""
        self.report = HealthReport({}, {})

    def add(self, name: str, function: CheckFunction, *, grace: float = GRACE, live: bool = False) -> None:
        """Add a check; its name is part of paths."""
        self._checks[name] = _Check(function, grace, live)

    def add_notes(self, notes: Callable[[], Mapping[str, str]]) -> None:
        """Show the result of this function, by name, in `/readyz?verbose`."""
        self._notes.append(notes)

    def run(self) -> HealthReport:
        """Run all checks."""
        now = self._clock()
        for check in self._checks.values():
            check.run(now)
        problems = {name: check.problem(now) for name, check in self._checks.items()}
        live = {name: problems[name] for name, check in self._checks.items() if check.live}
        notes = {name: note for function in self._notes for name, note in function().items()}
        self.report = HealthReport(live, problems, notes)
        self.last_run = now
        return self.report

    def silence(self) -> float:
        """Return the seconds since the event loop last ran the checks."""
        return self._clock() - self.last_run

    async def follow(self) -> None:
        """Run the checks repeatedly until canceled."""
        while True:
            self.run()
            await asyncio.sleep(CHECK_INTERVAL)


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """Response to a probe."""

    status: int
    text: str


def respond(
    probe: str,
    problems: Problems,
    *,
    verbose: bool,
    only: str = "",
    exclude: Collection[str] = (),
    notes: Mapping[str, str] | None = None,
) -> ProbeResponse:
    """Return the response of a probe (`healthz`, `readyz`). `only` selects one check."""
    all_problems = {PING: None, **problems}
    if only:
        if only not in all_problems:
            return ProbeResponse(404, f"unknown check {only}; known checks: {', '.join(sorted(all_problems))}\n")
        all_problems = {only: all_problems[only]}
    checked = {name: problem for name, problem in all_problems.items() if name not in exclude}
    broken = any(problem is not None for problem in checked.values())
    if not broken and not verbose:
        return ProbeResponse(200, "ok")
    lines = [_line(name, problem, excluded=name in exclude) for name, problem in all_problems.items()]
    if not only:
        lines += [f"[!]{name} {' '.join(note.split())}" for name, note in (notes or {}).items()]
    unknown = sorted(set(exclude) - all_problems.keys())
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
    lines.append(f"{probe} check {'failed' if broken else 'passed'}")
    return ProbeResponse(500 if broken else 200, "\n".join(lines) + "\n")


def _line(name: str, problem: str | None, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{name} excluded: ok"
    return f"[+]{name} ok" if problem is None else f"[-]{name} failed: {' '.join(problem.split())}"


_PROBES = ("healthz", "readyz")
_FLAG = "health-probe-bind-address"


@dataclass(frozen=True, slots=True)
class ProbeTimeouts:
    """Timeouts in seconds."""

    response: float = 0.7
    """For the checks; the kubelet waits for one second."""
    stuck: float = 10.0
    """Time without a run of the checks after which the event loop counts as blocked."""


class ProbeServer:
    """Server of `/healthz` and `/readyz`. Create it in the event loop that it watches.

    A probe makes the operator's event loop run the checks. If the event loop does not respond in time, the response has
    the last results, and after `ProbeTimeouts.stuck` a failure. A process without free file descriptors, or whose
    interpreter lock is held, does not respond at all, which is a failure too.
    """

    def __init__(self, checks: HealthChecks, timeouts: ProbeTimeouts) -> None:
        self._checks = checks
        self._timeouts = timeouts
        self._watched = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    async def start(self, address: Address) -> int:
        """Listen; return the port. Raises ConfigError if the address is in use."""
        listening: Future[int] = Future()
        listening.set_running_or_notify_cancel()  # a canceled start cannot cancel it, so the thread can set its result
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address, listening)), name="probes", daemon=True
        )
        self._thread.start()
        return await asyncio.wrap_future(listening)

    async def close(self) -> None:
        """Stop the server."""
        if self._own is not None and self._stop is not None:
            self._own.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _serve(self, address: Address, listening: Future[int]) -> None:
        self._own, self._stop = asyncio.get_running_loop(), asyncio.Event()
        handlers = {}
        for probe in _PROBES:
            handlers[f"/{probe}"] = handlers[f"/{probe}/{{name:.+}}"] = self._handler(probe)
        try:
            runner, port = await endpoints.serve(address, handlers, _FLAG)
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._own = None
            listening.set_exception(error)
            return
        listening.set_result(port)
        await self._stop.wait()
        self._own = None
        await runner.cleanup()

    def _handler(self, probe: str) -> endpoints.Handler:
        async def handle(request: web.Request) -> web.Response:
            response = respond(
                probe,
                await self._problems(probe),
                only=request.match_info.get("name", ""),
                exclude=request.query.getall("exclude", ()),
                verbose="verbose" in request.query,
                notes=self._checks.report.notes if probe == "readyz" else None,
            )
            return web.Response(text=response.text, status=response.status)

        return handle

    async def _problems(self, probe: str) -> Problems:
        stuck = await self._run_checks()
        report = self._checks.report
        return {LOOP: stuck, **(report.live if probe == "healthz" else report.ready)}

    async def _run_checks(self) -> str | None:
        """Run the checks in the event loop; return a problem if it is blocked."""
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # a probe that waits no longer cannot cancel it

        def run() -> None:
            try:
                self._checks.run()
            finally:
                done.set_result(None)

        try:
            self._watched.call_soon_threadsafe(run)
            async with asyncio.timeout(self._timeouts.response):
                await asyncio.wrap_future(done)
        except TimeoutError:
            silence = self._checks.silence()
            if silence >= self._timeouts.stuck:
                return f"blocked for {silence:.0f} s"
        except RuntimeError:
            return "stopped"
        return None
