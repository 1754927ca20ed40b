"""Runs in pods without pods and without Ansible: what the operator itself does for a run, and for a line of its output.

No node has the label that the pods want, so they wait for ever. The agents are connections of this process, which send
lines as `ansible-runner worker` writes them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench import objects
from bench.operator_process import OperatorProcess, Project, moment, running
from bench.process_stats import cpu_seconds, proportional
from bench.results import Result, show, tell
from runner.agent import frames
from runner.agent.frames import ALPN_LINK, PROTOCOL, Contact, Kind
from runner.core.kube.cache import Change
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.kube.informer import Informer
from runner.engines.pod import jobs
from runner.values.objects import GVK, ObjectKey

NAMESPACES = ("bench-growth", "bench-capacity")
_CASE = "pods"
_HOST = "127.0.0.1"
_PORT = 18444
_SECRET = GVK("", "v1", "Secret")
_OBJECTS = 30
_AT_ONCE = 15
_LONGEST = 240.0
_RUNS_WITH_LINES = 16
_TRY_AGAIN = 0.05
_LOOK = 0.2


def _line(counter: int) -> bytes:
    """Return an event of the size that a task with a small result has."""
    task = {"task": "Print", "task_uuid": "0" * 36, "task_action": "ansible.builtin.debug", "task_path": "/main.yml:2"}
    play = {"playbook": "main.yml", "playbook_uuid": "1" * 36, "play": "localhost", "play_uuid": "2" * 36}
    result = {"res": {"msg": f"{counter}", "changed": False, "failed": False}, "host": "localhost", "duration": 0.01}
    return orjson.dumps(
        {
            "uuid": f"{counter:036}",
            "counter": counter,
            "stdout": f'ok: [localhost] => (item={counter}) => {{\n    "msg": "{counter}"\n}}',
            "start_line": counter * 3,
            "end_line": counter * 3 + 3,
            "runner_ident": "bench",
            "event": "runner_item_on_ok",
            "pid": 1,
            "created": "2026-01-01T00:00:00.000000+00:00",
            "parent_uuid": "0" * 36,
            "event_data": {**play, **task, **result},
        }
    )


def _output(lines: int) -> bytes:
    """Return all frames of a run."""
    payloads = [b'{"status": "starting"}', *map(_line, range(1, lines + 1)), b'{"status": "successful"}']
    encoded = [frames.encode(Kind.DATA, number, payload) for number, payload in enumerate(payloads, 1)]
    ending = {"code": 0, "error": "", "stderr": "", "oom_kills": 0, "memory_limit": 0}
    return b"".join((*encoded, frames.encode_json(Kind.END, ending, len(encoded) + 1)))


@dataclass(slots=True)
class Agents:
    """Agents of all runs in a namespace."""

    client: Client
    namespace: str
    lines: int
    _runs: dict[ObjectKey, asyncio.Task[None]] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve each run, until the end."""
        selection = Selection(labels=jobs.RUN_OF)
        informer = Informer(self.client, Discovery(self.client), _SECRET, (self.namespace,), selection, "")
        output = _output(self.lines)

        def changed(change: Change) -> None:
            secret = informer.get(change.key) if change.new is not None else None
            if secret is None:
                self._runs.pop(change.key, None)
            elif change.key not in self._runs:
                self._runs[change.key] = asyncio.create_task(self._serve(secret["data"], output))

        following = asyncio.create_task(informer.follow(changed))
        try:
            yield
        finally:
            for task in (following, *self._runs.values()):
                task.cancel()
            await asyncio.gather(following, *self._runs.values(), return_exceptions=True)

    async def _serve(self, data: dict[str, str], output: bytes) -> None:
        text = {name: base64.b64decode(value).decode() for name, value in data.items() if name != jobs.AGENT}
        contact = Contact(text["run"], text["token"], text["ca.crt"], _HOST, _PORT, text["name"])
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if await _run(contact, output):
                    return
            await asyncio.sleep(_TRY_AGAIN)


async def _run(contact: Contact, output: bytes) -> bool:
    """Be the agent of a run; return False if the operator does not have it."""
    reader, writer = await frames.connect(contact, contact.host, ALPN_LINK)
    try:
        hello = {"protocol": PROTOCOL, "run": contact.run, "token": contact.token, "agent": "bench"}
        state = {"has_order": False, "last": 0, "acknowledged": 0}
        writer.write(frames.encode_json(Kind.HELLO, {**hello, **state}))
        kind, payload = await _frame(reader)
        if kind != Kind.WELCOME:
            return False
        while kind != Kind.ORDER or payload:
            kind, payload = await _frame(reader)
        sending = asyncio.create_task(_send(writer, output))
        while kind != Kind.RECORDED:
            kind, _ = await _frame(reader)
        await sending
        writer.close()
        await writer.wait_closed()
    finally:
        writer.transport.abort()
    return True


async def _send(writer: asyncio.StreamWriter, output: bytes) -> None:
    for at in range(0, len(output), 1 << 16):
        writer.write(output[at : at + (1 << 16)])
        await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, _, length = frames.HEADER.unpack(await reader.readexactly(frames.HEADER.size))
    return kind, await reader.readexactly(length)


@dataclass(frozen=True, slots=True)
class Bed:
    """The cluster, and a folder for projects."""

    client: Client
    kubeconfig: Path
    folder: Path

    @asynccontextmanager
    async def operator(self, namespace: str, **options: Any) -> AsyncIterator[Running]:
        """Start an operator."""
        template = {"image": "example.com/none", "nodeSelector": {"bench.example.com/node": "none"}}
        flags = (
            f"--pods-address={_HOST}:{_PORT}",
            f"--pods-bind-address={_HOST}:{_PORT}",
            f"--leader-election-namespace={namespace}",
            "--engine=exec",
        )
        folder = self.folder / namespace
        project = Project.make(folder, self.kubeconfig, [], isolation="pod", podTemplate=template, **options)
        async with running(project, namespace, *flags) as process:
            await process.await_ready()
            yield Running(process)

    async def create(self, namespace: str, count: int) -> None:
        """Create resources."""
        await objects.concurrently(
            range(count),
            lambda number: self.client.request("POST", objects.path(namespace), body=objects.body(f"object-{number}")),
        )


@dataclass(frozen=True, slots=True)
class Running:
    """An operator that runs the resources of a namespace."""

    process: OperatorProcess

    def ended(self) -> list[float]:
        """Return when each run has succeeded."""
        return [moment(line) for line in self.process.lines("Run ended", outcome="succeeded")]

    async def await_runs(self, count: int, within: float) -> int:
        """Wait for so many runs, or for this time in seconds; return their number."""
        deadline = time.monotonic() + within
        while True:
            found = len(self.ended())
            if found >= count or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_LOOK)

    def cpu(self) -> float:
        """Return the CPU time of the operator."""
        return cpu_seconds(self.process.pid)


async def growth(bed: Bed, runs: int) -> None:
    """Show how much memory the operator has more after these runs, of which some are at the same time.

    Before that, as many runs fill its caches, and the pools of its allocator.
    """
    namespace = "bench-growth"
    agents = Agents(bed.client, namespace, lines=20)
    async with agents.serving(), bed.operator(namespace, maxPods=_AT_ONCE, reconcilePeriod="1s") as operator:
        await bed.create(namespace, _OBJECTS)
        first = await operator.await_runs(runs, _LONGEST)
        before, spent, since = proportional(operator.process.pid), operator.cpu(), time.monotonic()
        tell(f"{runs} runs after {first}")
        counted = await operator.await_runs(first + runs, _LONGEST) - first
        seconds, used = time.monotonic() - since, operator.cpu() - spent
        grown = proportional(operator.process.pid) - before
    show(Result(_CASE, f"growth of the operator's memory in {counted} runs, for 1000", grown * 1000 / counted, "MiB"))
    show(Result(_CASE, "runs a second, agents without Ansible", counted / seconds, "1/s", better="higher"))
    show(Result(_CASE, "CPU time of the operator for a run, agents without Ansible", used / counted * 1000, "ms"))


async def capacity(bed: Bed, lines: int) -> None:
    """Show how many results a second the operator receives."""
    namespace = "bench-capacity"
    agents = Agents(bed.client, namespace, lines)
    async with agents.serving(), bed.operator(namespace, maxPods=_RUNS_WITH_LINES) as operator:
        spent, since = operator.cpu(), time.time()
        await bed.create(namespace, _RUNS_WITH_LINES)
        await operator.await_runs(_RUNS_WITH_LINES, _LONGEST)
        ended = sorted(operator.ended())[:_RUNS_WITH_LINES]
        used = operator.cpu() - spent
    if len(ended) < _RUNS_WITH_LINES:
        raise RuntimeError(f"only {len(ended)} of {_RUNS_WITH_LINES} runs ended within {_LONGEST:.0f} s")
    results = len(ended) * lines
    rate = results / (ended[-1] - since)
    show(Result(_CASE, "results a second, agents without Ansible", rate, "1/s", better="higher"))
    show(Result(_CASE, "CPU time for a result, agents without Ansible", used / results * 1000, "ms"))
