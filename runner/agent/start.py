"""Agent of one run, in the run's pod: `python3 agent.py SETTINGS_DIR WORK_DIR`.

It opens one TLS connection to the operator, fetches the run's order, starts `ansible-runner worker` with it, and sends
the worker's output as numbered frames. `agent.py` is a zip application of this package, which the operator mounts.

Promises: Ansible starts at most once. A frame is in `WORK_DIR` before it is sent and stays there, so the operator can
request all frames again. END is last. No process of the run is left then, except those of other users. A role can
start them with `become`, and they end with the pod. API calls wait while there is no operator. The pod's log contains
only text that the operator returned, and messages about the connection and such processes.

`SETTINGS_DIR` has the files `run`, `token`, `ca.crt`, `server` (host:port) and `name` (of the server, for TLS). They
are read for each attempt to connect. Exit codes: see `Exit`.

With a file `warm`, the agent is idle: it starts `preload` in another process and waits for ASSIGN. From then on it is
the agent of that run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from . import frames, proxies, user
from .frames import Exit
from .relay import Relay
from .spool import Spool
from .uplink import Uplink
from .worker import Worker

_DELIVERY = 10.0
"""Seconds in which an agent that got SIGTERM tries to deliver END."""


class Agent:
    """All parts of the agent."""

    def __init__(self, secret: Path, work: Path) -> None:
        self._secret = secret
        self._order = work / "order"
        self._spool = Spool(work / "spool")
        self._uplink = Uplink(secret, self._order, self._spool, self._begin, self._stop)
        self._worker = Worker(work, self._spool)
        self._relay = Relay(self._uplink)
        self._relay_error = ""
        self._run: asyncio.Task[None] | None = None
        self._terminated = asyncio.Event()

    async def run(self) -> Exit:
        """Run to the end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated.set)
        try:
            await self._relay.start()
        except OSError as error:
            self._relay_error = f"cannot listen on 127.0.0.1:{frames.RELAY_PORT} in the pod: {frames.text_of(error)}"
        tasks = {asyncio.ensure_future(self._keep()), asyncio.ensure_future(self._await_termination())}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code = next(iter(done)).result()
        if code == Exit.REFUSED or self._uplink.is_idle:
            await self._worker.kill()
        elif self._run is not None:
            self._worker.stop()
            await self._run
        return code

    async def _keep(self) -> Exit:
        if self._uplink.is_idle:
            self._uplink.problem = await self._worker.preload(self._secret)
        return await self._uplink.keep()

    def _begin(self, error: str) -> None:
        """Start Ansible, once."""
        if self._run is None:
            self._run = asyncio.ensure_future(self._worker.run(self._order, error or self._relay_error))
            self._run.add_done_callback(self._crash)

    def _stop(self) -> None:
        self._worker.stop()
        self._begin("the run was stopped before Ansible started")

    @staticmethod
    def _crash(run: asyncio.Task[None]) -> None:
        """End the process if it cannot send an ending, so that the pod fails."""
        if not run.cancelled() and run.exception() is not None:
            error: Any = run.exception()
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(1)

    async def _await_termination(self) -> Exit:
        """Wait for SIGTERM, end Ansible, and give the operator time to record the outcome."""
        await self._terminated.wait()
        if self._uplink.is_idle:
            return Exit.TERMINATED
        self._stop()
        if self._run is not None:
            await asyncio.wait({self._run})
        await asyncio.sleep(_DELIVERY)
        return Exit.TERMINATED


async def _main(secret: Path, work: Path) -> Exit:
    try:
        agent = Agent(secret, work)
    except FileExistsError as error:
        frames.log(f"{error.filename} exists: an agent has run in this pod before, and Ansible must not run twice")
        return Exit.USED
    return await agent.run()


def main() -> None:
    """Run the agent with the folders of the command line."""
    # asyncio logs lost TLS connections, which the agent reports itself.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    secret, work = sys.argv[1:]
    os.environ.update({**user.variables(os.environ), **proxies.variables(os.environ)})
    sys.exit(asyncio.run(_main(Path(secret), Path(work))))
