"""Answers probes from a thread of its own, so that an event loop that is stuck is told of rather than waited for.

Flow: a probe has the operator's event loop look at everything. Where that does not answer in time, what it found
last is told, and once it has been silent for too long, that it is stuck. What else a stuck process needs to answer (its
open files, the interpreter's lock) is needed here as well: a probe that gets no answer at all has failed too.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass

from aiohttp import web

from runner.monitoring import endpoints, health
from runner.monitoring.endpoints import Address
from runner.monitoring.health import Health, Problems

_PROBES = ("healthz", "readyz")
_FLAG = "health-probe-bind-address"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    answer: float = 0.7
    """How long a look may take: a kubelet waits for a second."""
    silence: float = 10.0
    """After so long without a look the event loop is stuck."""


class ProbeServer:
    """The thread. Make it in the event loop that is watched."""

    def __init__(self, found: Health, patience: Patience | None = None) -> None:
        self._health = found
        self._patience = patience or Patience()
        self._watched = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    async def start(self, address: Address) -> int:
        """Listen; return the port. A place that is taken is a ConfigError."""
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address, listening)), name="probes", daemon=True
        )
        self._thread.start()
        return await asyncio.wrap_future(listening)

    async def close(self) -> None:
        """Answer no more."""
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
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start is told, whatever it is
            self._own = None
            listening.set_exception(error)
            return
        listening.set_result(port)
        await self._stop.wait()
        self._own = None
        await runner.cleanup()

    def _handler(self, probe: str) -> endpoints.Handler:
        async def handle(request: web.Request) -> web.Response:
            told = health.answer(
                probe,
                await self._problems(probe),
                only=request.match_info.get("name", ""),
                exclude=request.query.getall("exclude", ()),
                verbose="verbose" in request.query,
            )
            return web.Response(text=told.text, status=told.status)

        return handle

    async def _problems(self, probe: str) -> Problems:
        stuck = await self._ask()
        report = self._health.report
        return {health.LOOP: stuck, **(report.live if probe == "healthz" else report.ready)}

    async def _ask(self) -> str | None:
        """Have the event loop look; return why it is held to be stuck, where it is."""
        looked: Future[None] = Future()

        def look() -> None:
            try:
                self._health.look()
            finally:
                looked.set_result(None)

        try:
            self._watched.call_soon_threadsafe(look)
            await asyncio.wait_for(asyncio.wrap_future(looked), self._patience.answer)
        except TimeoutError:
            silence = self._health.silence()
            if silence >= self._patience.silence:
                return f"has done nothing for {silence:.0f} s"
        except RuntimeError:
            return "has ended"
        return None
