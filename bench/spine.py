"""How soon, how small, how quiet: the operator on a control plane of its own. `python -m bench.spine`.

1. Idle operator: from the creation of an object to the start of its run's process, one object after the other.
2. Many objects of 1 KiB: how long until all are in the cache, and how late the operator's event loop is at start, while
   listing and while runs go on.

So that the many objects cost no run each, they are being deleted and held by a finalizer of somebody else: a watch
without finalizer has nothing to do with these. All figures of the operator are those of its main process.

`BENCH_OBJECTS`, `BENCH_SAMPLES`, `BENCH_RUNS` and `BENCH_REPEATS` make it smaller.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench import objects, process_stats
from bench.bed import Bed, on_cluster, show_all
from bench.operator_process import OperatorProcess, Project, moment, running
from bench.results import Result, percentile, size, tell
from runner.core.kube.client import Client

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


_OBJECTS, _SAMPLES = size("OBJECTS", 5000), size("SAMPLES", 40)
_RUNS, _REPEATS = size("RUNS", 8), size("REPEATS", 3)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Milliseconds since just before an object's creation was asked for."""

    process: float
    first_task: float


async def _measure(bed: Bed) -> None:
    await objects.install(bed.client, (_ALONE, _NONE, _MANY))
    await show_all("latency", _latency(bed))
    await show_all("many", _many(bed))


async def _latency(bed: Bed) -> AsyncIterator[Result]:
    """From creation to the start of a run, and what of it is the API server's."""
    tell(f"latency: {_SAMPLES} objects, one after the other")
    posts = [await _post(bed.client, _NONE, f"alone-{number}") for number in range(_WARM_UP + _SAMPLES)]
    posts = posts[_WARM_UP:]
    async with running(bed.project("trivial", _TRIVIAL), _ALONE) as operator:
        await operator.await_ready()
        for number in range(_WARM_UP):
            await _sample(bed, operator, f"warm-up-{number}")
        samples = [await _sample(bed, operator, f"sample-{number}") for number in range(_SAMPLES)]
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


async def _sample(bed: Bed, operator: OperatorProcess, name: str) -> _Sample:
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


async def _many(bed: Bed) -> AsyncIterator[Result]:
    """Start, memory and lag with many objects, against an operator with none."""
    tell(f"many: creating {_OBJECTS} objects of {_OBJECT_BYTES} bytes")
    await objects.create_held(bed.client, _MANY, _OBJECTS, _OBJECT_BYTES)
    bare = statistics.median([await _bare_list(bed) for _ in range(_REPEATS)])
    project = bed.project("busy", _BUSY)
    tell(f"many: {_REPEATS} starts with none and with {_OBJECTS} objects")
    none, many = zip(
        *[(await _start(project, _NONE, 0), await _start(project, _MANY, _OBJECTS)) for _ in range(_REPEATS)],
        strict=True,
    )
    without, full = (statistics.median(seconds for seconds, _ in starts) for starts in (none, many))
    yield Result(_CASE, "start to full cache", full, "s", 5)
    yield Result(_CASE, "start with no objects", without, "s")
    yield Result(_CASE, "bare list of the objects", bare, "s")
    yield Result(_CASE, "cost of a full cache at start, in bare lists", (full - without) / bare, "ratio")
    resident = statistics.median(memory for _, memory in none)
    yield Result(_CASE, "memory of an operator with none, RSS", resident, "MiB")
    async for result in _lag(bed, project):
        yield result


async def _bare_list(bed: Bed) -> float:
    began = time.perf_counter()
    count = await objects.count_by_pages(bed.client, _MANY, _PAGE)
    seconds = time.perf_counter() - began
    _expect(count, _OBJECTS)
    return seconds


async def _start(project: Project, namespace: str, count: int) -> tuple[float, float]:
    """Return the seconds until the cache of an operator is full, and its memory in MiB."""
    async with running(project, namespace) as operator:
        seconds = await _full(operator, count)
        await asyncio.sleep(_CALM)
        return seconds, process_stats.resident(operator.pid)


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


async def _lag(bed: Bed, project: Project) -> AsyncIterator[Result]:
    """How late the event loop is, from start to the end of runs that go on at once."""
    tell(f"many: {_RUNS} runs at once")
    async with running(project, _MANY, f"--max-concurrent-reconciles={_RUNS}") as operator:
        await _full(operator, _OBJECTS)
        listing = _buckets(await operator.metrics())
        for number in range(_RUNS):
            await _post(bed.client, _MANY, f"busy-{number}")
        ended = await operator.await_lines(_RUNS, "Run ended")
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
    on_cluster(_measure)
