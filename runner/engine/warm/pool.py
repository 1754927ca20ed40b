"""The operator's end of fork servers: start them, give them runs, replace them.

Promises what `starter.Starter` promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from runner.engine import starter
from runner.engine.starter import READ_AHEAD, Started
from runner.engine.warm import procfs
from runner.engine.warm.messages import MESSAGE, RUN
from runner.engine.wire import Order

_START = Path(__file__).with_name("start.py")
PER_RUN = ("KUBECONFIG", "K8S_AUTH_KUBECONFIG", "ANSIBLE_LOCAL_TEMP")
_ONLY_RUNS = "ANSIBLE_OPERATOR_RUN_ID"


class Server:
    """One fork server."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket, scratch: Path) -> None:
        self._process = process
        self._connection = connection
        self._scratch = scratch
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, environment: Mapping[str, str], folder: Path) -> Server:
        """Start one for runs with this environment."""
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".warm-", dir=folder))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)  # noqa: FBT003 - the standard library's
        shared = {name: value for name, value in environment.items() if name != _ONLY_RUNS}
        shared |= {name: str(scratch / name) for name in PER_RUN if name in environment}
        shared[procfs.PADDING] = procfs.padding()
        number = theirs.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_START),
            str(number),
            str(scratch),
            procfs.padding(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=shared,
            pass_fds=(number,),
        )
        theirs.close()
        server = cls(process, ours, scratch)
        await server._answer()
        return server

    async def fork(self, streams: list[int]) -> int:
        """Have a supervisor forked; returns its pid."""
        async with self._turn:
            socket.send_fds(self._connection, [RUN], streams)
            answer = await self._answer()
        if "error" in answer:
            raise OSError(answer["error"])
        pid: int = answer["pid"]
        return pid

    async def _answer(self) -> Any:
        data = await asyncio.get_running_loop().sock_recv(self._connection, MESSAGE)
        if not data:
            raise ConnectionError("the fork server ended")
        return json.loads(data)

    async def close(self) -> None:
        self._connection.close()
        await self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


class Pool:
    """Fork servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Server | None = None
        self._starting = asyncio.Lock()

    async def start(self, order: Order, environment: Mapping[str, str]) -> Started:
        async with self._starting:
            if self._server is None:
                self._server = await Server.start(environment, self._folder)
        pipes = [os.pipe(), os.pipe(), os.pipe()]
        control, events, complaints = pipes
        try:
            pid = await self._server.fork([control[0], events[1], complaints[1]])
        finally:
            for descriptor in (control[0], events[1], complaints[1]):
                os.close(descriptor)
        writer = await _writer(control[1])
        writer.write(orjson.dumps(dict(environment)) + b"\n" + starter.line(order))

        async def wait() -> int | None:
            return await ended(pid)

        return Started(pid, writer, await _reader(events[0]), await _reader(complaints[0]), wait)

    async def close(self) -> None:
        if self._server:
            await self._server.close()
            self._server = None


async def _reader(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_AHEAD)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol = asyncio.streams.FlowControlMixin()
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(descriptor, "wb"))
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def ended(pid: int) -> int | None:
    """Wait for a child that we did not start ourselves, and reap it."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    over = loop.create_future()
    loop.add_reader(descriptor, lambda: over.done() or over.set_result(None))
    try:
        await over
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    return None
