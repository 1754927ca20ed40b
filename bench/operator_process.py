"""The installed command, started as a user does, and read by its log, probes and metrics.

Owns the project folder that it runs in. What it writes to standard error are lines of JSON with `msg` and `ts`; times
are compared with this process' clock, which is the same machine's.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from bench.objects import GROUP, KIND, VERSION
from tests.kit.operator import PROGRAM, Operator, operators_environment, run_command
from tests.kit.places import ROOT
from tests.kit.wait import until

Line = dict[str, Any]

DEADLINE = 300.0
"""Seconds after which what is waited for is not going to happen."""
_STOP_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Project:
    """A user's folder: watches.yaml and one role."""

    folder: Path
    kubeconfig: Path
    program: tuple[str, ...] = PROGRAM
    """What starts the operator, before its command and flags."""

    @classmethod
    def make(cls, folder: Path, kubeconfig: Path, tasks: list[dict[str, Any]], **options: Any) -> Project:
        """Write one; a role of YAML is one of JSON as well. `options` are further fields of the watch."""
        role = folder / "roles" / "bench" / "tasks"
        role.mkdir(parents=True)
        (role / "main.yml").write_text(json.dumps(tasks), encoding="utf-8")
        watch = {"group": GROUP, "version": VERSION, "kind": KIND, "role": "bench", **options}
        (folder / "watches.yaml").write_text(json.dumps([watch]), encoding="utf-8")
        return cls(folder, kubeconfig)

    @classmethod
    def sample(cls, folder: Path, kubeconfig: Path) -> Project:
        """Write one that runs the sample operator's role."""
        folder.mkdir(parents=True)
        (folder / "roles").symlink_to(ROOT / "roles")
        (folder / "watches.yaml").symlink_to(ROOT / "watches.yaml")
        return cls(folder, kubeconfig)

    @property
    def runs(self) -> Path:
        """Where the operator keeps its run folders."""
        return self.folder / "runs"


@dataclass(slots=True)
class OperatorProcess:
    """A running operator."""

    project: Project
    operator: Operator
    started: float
    """When it was started, in seconds since the epoch."""
    _session: aiohttp.ClientSession

    @property
    def pid(self) -> int:
        """The operator's own process."""
        return self.operator.process.pid

    async def await_line(self, message: str, **fields: Any) -> Line:
        """Wait for a log line with this message and these values."""
        return (await self.await_lines(1, message, **fields))[0]

    async def await_lines(self, count: int, message: str, **fields: Any) -> list[Line]:
        """Wait for as many log lines with this message and these values."""
        await self._until(
            lambda: len(self.lines(message, **fields)) >= count, f"the log to say {message!r} {count} times"
        )
        return self.lines(message, **fields)

    def lines(self, message: str, **fields: Any) -> list[Line]:
        """Return the log lines so far with this message and these values."""
        return self.operator.lines(message, **fields)

    async def await_ready(self) -> None:
        """Wait for the readiness probe to agree."""
        port = await self._port("/readyz")

        async def is_ready() -> bool:
            return await self._status(f"http://127.0.0.1:{port}/readyz") == 200

        await until(is_ready, "the operator to be ready", DEADLINE)

    async def metrics(self) -> str:
        """Return its metrics in the text format."""
        async with self._session.get(f"http://127.0.0.1:{await self._port('/metrics')}/metrics") as answer:
            return await answer.text()

    async def _status(self, url: str) -> int:
        async with self._session.get(url) as answer:
            return answer.status

    async def _port(self, path: str) -> int:
        await self.await_line("Serving")
        await self._until(lambda: bool(self._serving(path)), f"{path} to be served")
        return int(self._serving(path)[0]["port"])

    def _serving(self, path: str) -> list[Line]:
        return [line for line in self.lines("Serving") if path in line["paths"]]

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        process = self.operator.process

        def is_reached() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"ended with {process.returncode}, before {what}:\n{self.operator.log[-4000:]}")
            return holds()

        await until(is_reached, lambda: f"{what}:\n{self.operator.log[-4000:]}", DEADLINE)

    def stop(self) -> None:
        """End it as Kubernetes does."""
        try:
            self.operator.stop(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.operator.kill()


@asynccontextmanager
async def running(project: Project, namespace: str, *flags: str) -> AsyncIterator[OperatorProcess]:
    """Run the operator on one namespace, and end it."""
    log = project.folder / f"{namespace}-{time.monotonic_ns()}.log"
    async with aiohttp.ClientSession() as session:
        with log.open("wb") as errors, log.with_suffix(".out").open("wb") as output:
            started = time.time()
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to happen before it is started
                _command(project, namespace, flags),
                cwd=project.folder,
                env=operators_environment(),
                stdout=output,
                stderr=errors,
            )
        operator = OperatorProcess(project, Operator(process, log), started, session)
        try:
            yield operator
        finally:
            await asyncio.to_thread(operator.stop)


def moment(line: Line) -> float:
    """Return when a line was written, in seconds since the epoch."""
    return datetime.fromisoformat(line["ts"]).timestamp()


def _command(project: Project, namespace: str, flags: tuple[str, ...]) -> list[str]:
    # As in a cluster, a page that users can look at remembers the runs of each object.
    own = ("--ui-bind-address=0", "--log-level=debug")
    return [*project.program, *run_command(project.kubeconfig, project.runs, namespace, *own, *flags)]
