"""How soon, how small, how quiet: the operator on a control plane of its own. `python -m bench.spine`.

1. Idle operator: from the creation of an object to the start of its run's process, one object after the other.
2. Many objects of 1 KiB: how long until all are in the cache, what memory they cost, what the operator does while
   nothing happens, and how late its event loop is at start, while listing and while runs go on.

So that the many objects cost no run each, they are being deleted and held by a finalizer of somebody else: a watch
without finalizer has nothing to do with these. All figures of the operator are those of its main process.

`BENCH_OBJECTS`, `BENCH_SAMPLES`, `BENCH_RUNS`, `BENCH_REPEATS` and `BENCH_IDLE_SECONDS` make it smaller.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench import objects, process_stats
from bench.operator_process import OperatorProcess, Project, moment, running
from bench.results import Result, percentile, show, tell
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster

_CASE = "spine"
_ALONE, _NONE, _MANY = "bench-latency", "bench-none", "bench-many"
_OBJECT_BYTES = 1024
_PAGE = 500
_WARM_UP = 3
"""Objects that are not counted: the first of a kind, and the first runs, cost what all later ones find ready."""
_SETTLE = 0.2
"""Seconds after a run's end in which its status is written and the operator becomes idle."""
_CALM = 3.0
"""Seconds after which an operator that was just started has done what it does at start."""

_TRIVIAL: list[dict[str, Any]] = [{"name": "Say hello", "ansible.builtin.debug": {"msg": "hello"}}]
_BUSY: list[dict[str, Any]] = [
    {
        "name": "Start a command",
        "ansible.builtin.command": "true",
        "changed_when": False,
        "loop": "{{ range(6) | list }}",
    },
    {"name": "Look at a file", "ansible.builtin.stat": {"path": "/etc/passwd"}, "loop": "{{ range(6) | list }}"},
    {"name": "Say much", "ansible.builtin.debug": {"msg": "{{ 'x' * 10000 }}"}, "loop": "{{ range(20) | list }}"},
]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    objects: int
    samples: int
    runs: int
    repeats: int
    idle_seconds: float

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        return cls(
            objects=int(environ.get("BENCH_OBJECTS", "5000")),
            samples=int(environ.get("BENCH_SAMPLES", "40")),
            runs=int(environ.get("BENCH_RUNS", "8")),
            repeats=int(environ.get("BENCH_REPEATS", "3")),
            idle_seconds=float(environ.get("BENCH_IDLE_SECONDS", "20")),
        )


@dataclass(frozen=True, slots=True)
class _Bed:
    """What every measurement needs."""

    size: Size
    client: Client
    folder: Path
    kubeconfig: Path

    def project(self, name: str, tasks: list[dict[str, Any]]) -> Project:
        return Project.make(self.folder / name, self.kubeconfig, tasks)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Milliseconds since just before an object's creation was asked for."""

    process: float
    first_task: float


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of an operator: seconds until its cache was full, then MiB."""

    seconds: float
    resident: float
    proportional: float


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(cluster.kubeconfig, Path(folder), Size.of(os.environ)))


async def _measure(kubeconfig: Path, folder: Path, size: Size) -> None:
    async with Client(await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        bed = _Bed(size, client, folder, kubeconfig)
        await objects.install(client, (_ALONE, _NONE, _MANY))
        for part in (_latency(bed), _many(bed)):
            tell("load average {:.1f}, {:.1f}, {:.1f}".format(*os.getloadavg()))
            async for result in part:
                show(result)


async def _latency(bed: _Bed) -> AsyncIterator[Result]:
    """From creation to the start of a run, and what of it is the API server's."""
    tell(f"latency: {bed.size.samples} objects, one after the other")
    posts = [await _post(bed.client, _NONE, f"alone-{number}") for number in range(_WARM_UP + bed.size.samples)]
    posts = posts[_WARM_UP:]
    async with running(bed.project("trivial", _TRIVIAL), _ALONE) as operator:
        await operator.await_ready()
        for number in range(_WARM_UP):
            await _sample(bed, operator, f"warm-up-{number}")
        samples = [await _sample(bed, operator, f"sample-{number}") for number in range(bed.size.samples)]
    await bed.client.request("DELETE", objects.path(_NONE))
    starts, tasks = [sample.process for sample in samples], [sample.first_task for sample in samples]
    yield Result(_CASE, "creation to start of run, p50", percentile(starts, 50), "ms", 20)
    yield Result(_CASE, "creation to start of run, p95", percentile(starts, 95), "ms", 50)
    yield Result(_CASE, "creation alone, p50", percentile(posts, 50), "ms")
    yield Result(_CASE, "creation alone, p95", percentile(posts, 95), "ms")
    yield Result(_CASE, "creation to first task, p50", percentile(tasks, 50), "ms")
    yield Result(_CASE, "creation to first task, p95", percentile(tasks, 95), "ms")


async def _post(client: Client, namespace: str, name: str) -> float:
    """Create an object; return the milliseconds until the answer was there."""
    began = time.perf_counter()
    await client.request("POST", objects.path(namespace), body=objects.body(name))
    return (time.perf_counter() - began) * 1000


async def _sample(bed: _Bed, operator: OperatorProcess, name: str) -> _Sample:
    began = time.time()
    await _post(bed.client, _ALONE, name)
    job = (await operator.await_line("Run started", name=name))["job"]
    process = await operator.await_line("Run's process started", job=job)
    await operator.await_line("Run ended", job=job)
    await asyncio.sleep(_SETTLE)
    first_task = await asyncio.to_thread(_first_task, operator.project, job)
    return _Sample((moment(process) - began) * 1000, (first_task - began) * 1000)


def _first_task(project: Project, job: str) -> float:
    """Return when a run's first task began, by the event that ansible-runner left of it."""
    (folder,) = project.runs.glob(f"**/artifacts/{job}/job_events")
    events = (json.loads(file.read_bytes()) for file in folder.glob("*.json"))
    return min(
        datetime.fromisoformat(event["created"]).timestamp()
        for event in events
        if event["event"] == "playbook_on_task_start"
    )


async def _many(bed: _Bed) -> AsyncIterator[Result]:
    """Start, memory, idleness and lag with many objects, against an operator with none."""
    size = bed.size
    tell(f"many: creating {size.objects} objects of {_OBJECT_BYTES} bytes")
    await objects.create_held(bed.client, _MANY, size.objects, _OBJECT_BYTES)
    bare = statistics.median([await _bare_list(bed) for _ in range(size.repeats)])
    project = bed.project("busy", _BUSY)
    tell(f"many: {size.repeats} starts with none and with {size.objects} objects")
    none: list[_Start] = []
    many: list[_Start] = []
    for _ in range(size.repeats):
        none.append(await _start(project, _NONE, 0))
        many.append(await _start(project, _MANY, size.objects))
    for result in _starts(none, many, bare):
        yield result
    yield Result(_CASE, "CPU when idle with many objects", await _idle(bed, project), "% of a core", 1)
    async for result in _lag(bed, project):
        yield result


def _starts(none: list[_Start], many: list[_Start], bare: float) -> list[Result]:
    without, full = (statistics.median(start.seconds for start in starts) for starts in (none, many))
    resident, proportional = (
        statistics.median(getattr(start, name) for start in many)
        - statistics.median(getattr(start, name) for start in none)
        for name in ("resident", "proportional")
    )
    return [
        Result(_CASE, "start to full cache", full, "s", 5),
        Result(_CASE, "start with no objects", without, "s"),
        Result(_CASE, "bare list of the objects", bare, "s"),
        Result(_CASE, "cost of a full cache at start, in bare lists", (full - without) / bare, "ratio"),
        Result(_CASE, "memory above an operator with none, RSS", resident, "MiB", 40),
        Result(_CASE, "memory above an operator with none, PSS", proportional, "MiB", 40),
        Result(
            _CASE,
            "memory of an operator with none, RSS",
            statistics.median(start.resident for start in none),
            "MiB",
        ),
    ]


async def _bare_list(bed: _Bed) -> float:
    began = time.perf_counter()
    count = await objects.count_by_pages(bed.client, _MANY, _PAGE)
    seconds = time.perf_counter() - began
    _expect(count, bed.size.objects)
    return seconds


async def _start(project: Project, namespace: str, count: int) -> _Start:
    async with running(project, namespace) as operator:
        seconds = await _full(operator, count)
        await asyncio.sleep(_CALM)
        pid = operator.pid
        return _Start(seconds, process_stats.resident(pid), process_stats.proportional(pid))


async def _full(operator: OperatorProcess, count: int) -> float:
    """Wait for a full cache; return how many seconds that took."""
    await operator.await_ready()
    seconds = time.time() - operator.started
    watched = _samples(await operator.metrics(), "ansible_operator_objects")
    _expect(sum(value for _, value in watched), count)
    return seconds


def _expect(found: float, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found:g} objects were seen, {wanted} were there: the figures would be of something else")


async def _idle(bed: _Bed, project: Project) -> float:
    """Return the share of a core that an operator with many objects uses while nothing happens, in percent."""
    tell(f"many: idle for {bed.size.idle_seconds:g} s")
    async with running(project, _MANY) as operator:
        await _full(operator, bed.size.objects)
        await asyncio.sleep(_CALM)
        return await process_stats.cpu_percent(operator.pid, bed.size.idle_seconds)


async def _lag(bed: _Bed, project: Project) -> AsyncIterator[Result]:
    """How late the event loop is, from start to the end of runs that go on at once."""
    runs = bed.size.runs
    tell(f"many: {runs} runs at once")
    async with running(project, _MANY, f"--max-concurrent-reconciles={runs}") as operator:
        await _full(operator, bed.size.objects)
        listing = _buckets(await operator.metrics())
        for number in range(runs):
            await _post(bed.client, _MANY, f"busy-{number}")
        ended = await operator.await_lines(runs, "Run ended")
        found = _buckets(await operator.metrics())
    failed = [line for line in ended if line["outcome"] != "succeeded"]
    if failed:
        raise RuntimeError(f"a run of the benchmark failed: {failed[0]}")
    yield Result(_CASE, "loop lag throughout, p99", _bound(found, 0.99) * 1000, "ms", 50)
    yield Result(_CASE, "loop lag throughout, highest", _bound(found, 1.0) * 1000, "ms")
    yield Result(_CASE, "loop lag until the cache is full, highest", _bound(listing, 1.0) * 1000, "ms")


def _buckets(text: str) -> list[tuple[float, float]]:
    """Read the histogram of loop lag: upper bounds in seconds, and how many measurements are not above each."""
    found = _samples(text, "ansible_operator_loop_lag_seconds_bucket")
    return [(float(labels["le"]), value) for labels, value in found]


def _samples(text: str, name: str) -> list[tuple[Mapping[str, str], float]]:
    families = text_string_to_metric_families(text)
    return [(found.labels, found.value) for family in families for found in family.samples if found.name == name]


def _bound(buckets: list[tuple[float, float]], share: float) -> float:
    """Return the bound of the bucket that holds the measurement which `share` of all do not exceed.

    What is above every finite bound comes as the highest of them: JSON has no infinity, and no goal is near it.
    """
    total = buckets[-1][1]
    bound = next(bound for bound, count in buckets if count >= share * total)
    return min(bound, buckets[-2][0])


if __name__ == "__main__":
    main()
