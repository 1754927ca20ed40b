"""Server of probes in a thread of its own, so that it can report a blocked event loop.

A probe makes the operator's event loop run the checks. If the event loop does not respond in time, the response has
the last results, and after `ProbeTimeouts.stuck` a failure. A process without free file descriptors, or whose
interpreter lock is held, does not respond at all, which is a failure too.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass

from aiohttp import web

from runner.monitoring import endpoints, health
from runner.monitoring.endpoints import Address
from runner.monitoring.health import HealthChecks, Problems

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
    """Server of `/healthz` and `/readyz`. Create it in the event loop that it watches."""

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
            response = health.respond(
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
        return {health.LOOP: stuck, **(report.live if probe == "healthz" else report.ready)}

    async def _run_checks(self) -> str | None:
        """Run the checks in the event loop; return a problem if it is blocked."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                self._checks.run()
            finally:
                done.set_result(None)

        try:
            self._watched.call_soon_threadsafe(run)
            await asyncio.wait_for(asyncio.wrap_future(done), self._timeouts.response)
        except TimeoutError:
            silence = self._checks.silence()
            if silence >= self._timeouts.stuck:
                return f"blocked for {silence:.0f} s"
        except RuntimeError:
            return "stopped"
        return None
