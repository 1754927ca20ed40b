"""`ansible-runner worker`, and all processes below the agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from . import frames, machine, process_tree
from .frames import AgentError
from .process_tree import STUCK_ERROR, StuckWatch
from .spool import Output, Spool

_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL to the worker."""
_LEFTOVER_GRACE = 2.0
"""The same for background processes of the role that outlive the worker."""
_STDERR = 4096
_LOOK = 1.0
_OLDEST_RUNNER = (2, 4)
_VERSION_TIMEOUT = 60.0
_PRELOAD_TIMEOUT = 60.0
_ROOT = Path("/")


class Child(NamedTuple):
    """A process, and its exit code later."""

    process: subprocess.Popen[bytes]
    ended: asyncio.Future[int]


class Children:
    """Child processes, and orphans below them, which become children of this process."""

    def __init__(self) -> None:
        self._running: dict[int, Child] = {}
        self._loop = asyncio.get_running_loop()
        self._has_reported = False
        # The first process of a container needs no call.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            process_tree.adopt_orphans()
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def start(self, command: list[str], **options: Any) -> Child:
        """Start a process. Raises OSError."""
        child = Child(subprocess.Popen(command, **options), self._loop.create_future())
        self._running[child.process.pid] = child
        return child

    def _reap(self) -> None:
        for pid, status in process_tree.reaped():
            if pid in self._running:
                process, ended = self._running.pop(pid)
                process.returncode = os.waitstatus_to_exitcode(status)
                ended.set_result(process.returncode)

    async def end_all(self, grace: float) -> None:
        """End the processes below this one that may be signaled: SIGTERM, and after `grace` seconds SIGKILL."""
        for _ in process_tree.ending(grace):
            await asyncio.sleep(process_tree.INTERVAL)
        if (left := process_tree.living_below()) and not self._has_reported:
            self._has_reported = True
            frames.log(
                f"{len(left)} processes of the run remain until the pod ends: another user's, or blocked in the kernel"
            )


class Worker:
    """`ansible-runner worker`."""

    def __init__(self, work: Path, spool: Spool) -> None:
        self._work = work
        self._spool = spool
        self._children = Children()
        self._worker: Child | None = None
        self._is_stopping = False
        self._stop: asyncio.Task[None] | None = None
        self._preloaded: Child | None = None
        self._problem = asyncio.ensure_future(self._check())

    async def preload(self, secret: Path) -> str:
        """Start a worker that waits with Ansible loaded; return why it is not loaded, or an empty text."""
        reading, writing = os.pipe()
        report = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(report), os.fdopen(reading, "rb")
        )
        try:
            with (self._work / "stderr").open("wb") as stderr:
                child = self._children.start(
                    [sys.executable, sys.argv[0], "preload", str(secret), str(self._work), str(writing)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except OSError as error:
            transport.close()
            return frames.text_of(error)
        finally:
            os.close(writing)
        try:
            text = await asyncio.wait_for(report.read(), _PRELOAD_TIMEOUT)
        except asyncio.TimeoutError:
            if not child.ended.done():
                os.kill(child.process.pid, signal.SIGKILL)
            await child.ended  # it writes to the folder of the run
            shutil.rmtree(self._work / "run", ignore_errors=True)
            return f"it was not loaded within {_PRELOAD_TIMEOUT:g} s"
        finally:
            transport.close()
        problem = json.loads(text)["problem"] if text else f"the process that loads it ended: {self._stderr()}"
        if text:
            self._preloaded = child
        return str(problem)

    async def run(self, order: Path, error: str) -> None:
        """Run Ansible and add its output and ending to the spool. `error`: why it must not start, or empty."""
        kills = _oom_kills()
        code = None
        watching = asyncio.ensure_future(self._watch())
        try:
            error = error or await self._problem
            if not error:
                code = await self._run(order)
        except (AgentError, OSError) as cause:
            error = frames.text_of(cause)
        watching.cancel()
        if watching.done() and not watching.cancelled():
            error = watching.result()
        await self._children.end_all(_LEFTOVER_GRACE)
        ending = {
            "code": code,
            "error": error,
            "stderr": self._stderr(),
            "oom_kills": max(0, _oom_kills() - kills),
            "memory_limit": machine.memory_limit(_ROOT),
            "unused": self._unused(),
        }
        self._spool.end(json.dumps(ending).encode())

    async def _watch(self) -> str:
        """End Ansible when it is stuck after the kernel killed a process of it; return the error."""
        stuck = StuckWatch(_oom_kills)
        while True:
            await asyncio.sleep(_LOOK)
            if self._worker is not None and stuck.is_stuck(self._worker.process.pid):
                self.stop()
                return STUCK_ERROR

    def stop(self) -> None:
        """End Ansible with SIGTERM, later with SIGKILL."""
        self._is_stopping = True
        if self._stop is None and self._worker is not None:
            self._stop = asyncio.ensure_future(self._end(*self._worker))

    async def kill(self) -> None:
        """End Ansible at once."""
        self._is_stopping = True
        await self._children.end_all(0)

    async def _end(self, process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
        if not ended.done():
            # ansible-runner ends ansible-playbook, which has a process group of its own.
            os.killpg(process.pid, signal.SIGTERM)
        done, _ = await asyncio.wait({ended}, timeout=_GRACE)
        if not done:
            await self._children.end_all(0)

    async def _check(self) -> str:
        """Return the problem of the installed ansible-runner, or an empty text."""
        needed = "the image needs ansible-runner {}.{} or later".format(*_OLDEST_RUNNER)
        try:
            process, ended = self._children.start(
                ["ansible-runner", "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            return f"cannot start ansible-runner: {frames.text_of(error)}; {needed}"
        done, _ = await asyncio.wait({ended}, timeout=_VERSION_TIMEOUT)
        if not done:
            return f"ansible-runner --version did not end within {_VERSION_TIMEOUT:g} s; {needed}"
        assert process.stdout is not None  # noqa: S101 - it is a pipe, for the types
        with process.stdout:
            text = process.stdout.read(_STDERR).decode(errors="replace").strip()
        version = re.search(r"^(\d+)\.(\d+)", text, re.MULTILINE)
        if version is None:
            return f"ansible-runner --version printed {text!r}; {needed}"
        if (int(version[1]), int(version[2])) < _OLDEST_RUNNER:
            return f"ansible-runner is {text}; {needed}"
        return ""

    async def _run(self, order: Path) -> int:
        if self._is_stopping:
            raise AgentError("the run was stopped before Ansible started")
        self._worker = self._begin_preloaded(order) or self._begin(order)
        process, ended = self._worker
        loop = asyncio.get_running_loop()
        pipe, output = await loop.connect_read_pipe(lambda: Output(self._spool, self.stop), process.stdout)
        code = await ended
        # Background processes of the role can hold the pipe open.
        await self._children.end_all(_LEFTOVER_GRACE)
        await asyncio.wait({output.ended}, timeout=_LEFTOVER_GRACE)
        pipe.close()  # all that the worker wrote was read; a process of another user can still hold it
        await output.ended
        return code

    def _begin(self, order: Path) -> Child:
        folder = self._work / "run"
        folder.mkdir(exist_ok=True)  # that of a worker that did not load Ansible
        with order.open("rb") as stdin, (self._work / "stderr").open("wb") as stderr:
            return self._children.start(
                ["ansible-runner", "worker", "--private-data-dir", str(folder)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    def _begin_preloaded(self, order: Path) -> Child | None:
        if self._preloaded is None or self._preloaded.ended.done():
            return None
        stdin = self._preloaded.process.stdin
        assert stdin is not None  # noqa: S101 - it is a pipe, for the types
        try:
            with stdin:
                stdin.write(f"{order}\n".encode())
        except BrokenPipeError:  # it ended meanwhile
            return None
        return self._preloaded

    def _unused(self) -> str:
        try:
            return (self._work / "unused").read_text(encoding="utf-8")
        except OSError:
            return ""  # the loaded Ansible was used, or there was none

    def _stderr(self) -> str:
        try:
            with (self._work / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _STDERR))
                return file.read(_STDERR).decode(errors="replace")
        except OSError:
            return ""  # the worker did not start


def _oom_kills() -> int:
    return machine.oom_kills(_ROOT)
