"""What the proxy costs: time for each call, calls in a second, memory. `python -m bench.proxy`.

The proxy is that of the installed command, in the operator's process, and asked with the token of a run that goes on
(see `bench.standing`). The client (see `bench.lean`) is the same towards the API server and towards the proxy, and
takes turns between them, so that whatever else the machine does meets both.

1. One client, one GET after the other: directly, passed through, and from memory.
2. Sixteen clients, each with one GET at a time. Client, proxy (which uses one core and no more) and API server share
   the machine: with two cores, what the proxy can reach is bounded by what the other two leave of them.
3. 120 watches, each on a connection of its own, and as many of the proxy's to the API server. A run may have 128.
4. A list of 200 MiB, of whose content the client does not read more than it can; for a second it reads nothing.
5. 20,000 Secrets that nobody owns, beside one of a kind that is watched because a run made it.

Memory is that of the operator's process alone, resident; each of 3 to 5 begins with a fresh operator. 3 and 4 are what
it grew by: after all watches were answered, and at the peak that the kernel noted. 5 is what is more than in another
operator, whose namespace has no other Secrets.

Smaller by `BENCH_SAMPLES`, `BENCH_SECONDS`, `BENCH_REPEATS`, `BENCH_WATCHES`, `BENCH_LIST_MIB` and `BENCH_SECRETS`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import objects, process_stats
from bench.lean import Connection, Endpoint, throughput
from bench.operator_process import Project
from bench.results import Result, percentile, show, tell
from bench.standing import Standing, direct, standing, tasks
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from runner.values.objects import Object

_CASE = "proxy"
_GETS, _WATCHES, _LISTS, _LARGE, _FEW, _MANY = (
    f"bench-{name}" for name in ("gets", "watches", "lists", "large", "few", "many")
)
_CLIENTS = 16
_ROUND = 25
"""GETs of one sort in a row, before the other side has its turn."""
_MIB = 1 << 20
_PAUSE = 1.0
_SOME = 10
"""Calls that come first and are not counted: they find out what all later ones find ready."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    samples: int
    seconds: float
    repeats: int
    watches: int
    list_mib: int
    secrets: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        return cls(
            samples=int(environ.get("BENCH_SAMPLES", "2000")),
            seconds=float(environ.get("BENCH_SECONDS", "3")),
            repeats=int(environ.get("BENCH_REPEATS", "5")),
            watches=int(environ.get("BENCH_WATCHES", "120")),
            list_mib=int(environ.get("BENCH_LIST_MIB", "200")),
            secrets=int(environ.get("BENCH_SECRETS", "20000")),
        )


@dataclass(frozen=True, slots=True)
class _Bed:
    """What every measurement needs."""

    size: Size
    client: Client
    api: Endpoint
    folder: Path
    kubeconfig: Path

    def standing(self, namespace: str) -> AbstractAsyncContextManager[Standing]:
        """An operator in a folder of its own: no other's dependents are known to it."""
        folder = self.folder / namespace
        return standing(self.client, Project.make(folder, self.kubeconfig, tasks(folder)), namespace)

    async def create(self, namespace: str, resource: str, name: str, **fields: Any) -> None:
        path = f"/api/v1/namespaces/{namespace}/{resource}"
        await self.client.request("POST", path, body={"metadata": {"name": name}, **fields})


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(cluster.kubeconfig, Path(folder), Size.of(os.environ)))


async def _measure(kubeconfig: Path, folder: Path, size: Size) -> None:
    credentials = await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client:
        await objects.install(client, (_GETS, _WATCHES, _LISTS, _LARGE, _FEW, _MANY))
        bed = _Bed(size, client, await direct(credentials), folder, kubeconfig)
        for part in (_gets(bed), _watches(bed), _lists(bed), _secrets(bed)):
            tell("load average {:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg()))
            async for result in part:
                show(result)


async def _gets(bed: _Bed) -> AsyncIterator[Result]:
    """Time and throughput of GETs."""
    path = f"/api/v1/namespaces/{_GETS}/configmaps"
    await bed.create(_GETS, "configmaps", "other", data={"text": "x" * 500})
    async with bed.standing(_GETS) as run:
        hit = await run.own("configmaps", {"metadata": {"name": "owned"}, "data": {"text": "x" * 500}})
        bare, passed = bed.api.get(f"{path}/other"), run.proxy.get(f"{path}/other")
        tell(f"gets: {bed.size.samples} of each sort")
        asked = {"direct": (bed.api, bare), "passed through": (run.proxy, passed), "hit": (run.proxy, hit)}
        times = await asyncio.to_thread(_times, asked, bed.size.samples)
        tell(f"gets: {_CLIENTS} clients, {bed.size.repeats} times {bed.size.seconds:g} s on each side")
        rates, costs = await asyncio.to_thread(_rates, asked, bed.size, run.pid)
    halves = {sort: percentile(found, 50) for sort, found in times.items()}
    more = halves["passed through"] - halves["direct"]
    yield Result(_CASE, "pass-through GET above a direct one, p50", more, "ms", 1)
    yield Result(_CASE, "hit in direct GETs, p50", halves["hit"] / halves["direct"], "ratio", 0.3)
    for sort, found in times.items():
        yield Result(_CASE, f"{sort} GET, p50", halves[sort], "ms")
        yield Result(_CASE, f"{sort} GET, p95", percentile(found, 95), "ms")
    share = statistics.median(p / d for p, d in zip(rates["passed through"], rates["direct"], strict=True))
    name = f"throughput with {_CLIENTS} clients, passed through in direct"
    yield Result(_CASE, name, share, "ratio", 0.5, better="higher")
    for sort, rate in rates.items():
        name = f"throughput with {_CLIENTS} clients, {sort}"
        yield Result(_CASE, name, statistics.median(rate), "1/s", better="higher")
    for sort in ("passed through", "hit"):
        yield Result(_CASE, f"CPU time of the operator for each {sort} GET", statistics.median(costs[sort]), "ms")


def _times(asked: Mapping[str, tuple[Endpoint, bytes]], samples: int) -> Mapping[str, list[float]]:
    """Milliseconds of each GET, by its sort."""
    times: dict[str, list[float]] = {sort: [] for sort in asked}
    with ExitStack() as stack:
        connections = {sort: stack.enter_context(Connection(endpoint)) for sort, (endpoint, _) in asked.items()}
        for sort, (_, request) in asked.items():
            for _ in range(_SOME):
                _expect(sort, connections[sort], request)
        for left in range(samples, 0, -_ROUND):
            for sort, (_, request) in asked.items():
                for _ in range(min(left, _ROUND)):
                    times[sort].append(_expect(sort, connections[sort], request))
    return times


def _expect(sort: str, connection: Connection, request: bytes) -> float:
    """Ask; return the milliseconds. What was not answered as its sort says would be a figure of something else."""
    began = time.perf_counter()
    answer = connection.ask(request)
    milliseconds = (time.perf_counter() - began) * 1000
    if answer.status != 200 or answer.is_hit != (sort == "hit"):
        raise RuntimeError(f"{sort}: {answer}")
    return milliseconds


def _rates(
    asked: Mapping[str, tuple[Endpoint, bytes]], size: Size, pid: int
) -> tuple[Mapping[str, list[float]], Mapping[str, list[float]]]:
    """Answers per second, and milliseconds of the process' CPU time for each, by the sort of GET."""
    rates: dict[str, list[float]] = {sort: [] for sort in asked}
    costs: dict[str, list[float]] = {sort: [] for sort in asked}
    for _ in range(size.repeats):
        for sort, (endpoint, request) in asked.items():
            before = process_stats.cpu_seconds(pid)
            rate = throughput(endpoint, request, _CLIENTS, size.seconds)
            rates[sort].append(rate)
            costs[sort].append((process_stats.cpu_seconds(pid) - before) * 1000 / (rate * size.seconds))
    return rates, costs


async def _watches(bed: _Bed) -> AsyncIterator[Result]:
    """Memory of open watches."""
    count = bed.size.watches
    tell(f"watches: opening {count}")
    async with bed.standing(_WATCHES) as run:
        watch = run.proxy.get(f"/api/v1/namespaces/{_WATCHES}/configmaps?watch=1")
        before = process_stats.resident(run.pid)
        connections = await asyncio.to_thread(_open, run.proxy, watch, count)
        await run.calm()
        grown = process_stats.resident(run.pid) - before
        for connection in connections:
            connection.socket.close()
    yield Result(_CASE, f"memory of each of {count} watches", grown * 1024 / count, "KiB", 100)


def _open(endpoint: Endpoint, watch: bytes, count: int) -> list[Connection]:
    connections = []
    for _ in range(count):
        connections.append(Connection(endpoint))
        answer = connections[-1].head(watch)
        if answer.status != 200:
            raise RuntimeError(f"a watch was refused: {answer}")
    return connections


async def _lists(bed: _Bed) -> AsyncIterator[Result]:
    """Memory of a list that is passed through."""
    mib = bed.size.list_mib
    tell(f"lists: creating {mib} MiB")

    async def create(number: int) -> Object:
        await bed.create(_LARGE, "configmaps", f"large-{number}", data={"text": "x" * (_MIB - 1024)})
        return {}

    await objects.concurrently(range(mib + 1), create)
    path = f"/api/v1/namespaces/{_LARGE}/configmaps"
    tell(f"lists: {mib} MiB")
    async with bed.standing(_LISTS) as run:
        before = process_stats.resident(run.pid)
        process_stats.forget_peak(run.pid)
        size, seconds = await asyncio.to_thread(_stream, run.proxy, run.proxy.get(path))
        grown = process_stats.peak(run.pid) - before
    if size < mib * _MIB:
        raise RuntimeError(f"{size} bytes came of a list of {mib} MiB")
    _, without = await asyncio.to_thread(_stream, bed.api, bed.api.get(path))
    await bed.client.request("DELETE", path)
    yield Result(_CASE, f"peak of memory while a list of {mib} MiB passes", grown, "MiB", 20)
    yield Result(_CASE, f"time of a list of {mib} MiB, in direct lists", seconds / without, "ratio")


def _stream(endpoint: Endpoint, request: bytes) -> tuple[int, float]:
    """Read a list; return its bytes, and the seconds that it took without the pause."""
    with Connection(endpoint) as connection:
        began = time.perf_counter()
        size = connection.stream(request, pause_after=_MIB, pause=_PAUSE)
        return size, time.perf_counter() - began - _PAUSE


async def _secrets(bed: _Bed) -> AsyncIterator[Result]:
    """Memory of objects that nobody owns, of a kind that is watched."""
    count = bed.size.secrets
    tell(f"secrets: creating {count}")

    async def create(number: int) -> Object:
        await bed.create(_MANY, "secrets", f"other-{number:05}", stringData={"text": "x" * 200})
        return {}

    await objects.concurrently(range(count), create)
    tell(f"secrets: an operator beside none and beside {count}")
    few, many = [await _beside(bed, namespace) for namespace in (_FEW, _MANY)]
    yield Result(_CASE, f"memory of {count} Secrets that nobody owns", many.after - few.after, "MiB", 5)
    yield Result(_CASE, f"peak of memory while {count} Secrets are listed", many.peak - many.before, "MiB")
    yield Result(_CASE, "memory of an operator beside no Secrets", few.after, "MiB")


@dataclass(frozen=True, slots=True)
class _Memory:
    """MiB of an operator before, while and after it began to watch a kind."""

    before: float
    peak: float
    after: float


async def _beside(bed: _Bed, namespace: str) -> _Memory:
    """Have an operator watch the Secrets of a namespace."""
    async with bed.standing(namespace) as run:
        before = process_stats.resident(run.pid)
        process_stats.forget_peak(run.pid)
        await run.own("secrets", {"metadata": {"name": "owned"}, "stringData": {"text": "x"}})
        await run.calm()
        return _Memory(before, process_stats.peak(run.pid), process_stats.resident(run.pid))


if __name__ == "__main__":
    main()
