"""What objects cost that fail, that rest, and that are run again and again."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from bench import objects, process_stats, scale_virtual
from bench.operator_process import DEADLINE, OperatorProcess, Project, running
from bench.results import Result, tell
from bench.scale_bed import CASE, FAILING, FLAT, NONE, REST, SKIP, WARM, Bed, metric, succeeded, trivial
from runner.core.dependents.store import KindStore
from runner.core.kube.state import FileState
from runner.values.objects import GVK, Object
from tests.kit.wait import until

_OBJECT_BYTES = 1024
_KIB = 1024
_INSTANT = ("-m", "bench.without_ansible")
_CALM = 5.0
"""Seconds after which what a burst of work left in buffers and caches has gone."""
_IDLE = 10.0
"""Seconds at rest in which the CPU time of the operator is measured."""
_IDLE_BELOW = 5.0
"""Percent of a core below which an operator has nothing left to read."""
_DEPENDENTS = 5
"""ConfigMaps that each object owns."""
_WATCHED, _CONFIG_MAP = GVK(objects.GROUP, objects.VERSION, objects.KIND), GVK("", "v1", "ConfigMap")
_REST_WITHIN = 1800.0
_WARM_UP = 60
"""Runs after which an operator has loaded and cached what it will."""
_AT_ONCE = 20
"""Objects that are run again and again."""


async def failing(bed: Bed) -> AsyncIterator[Result]:
    """How often an object is run that can only fail."""
    seconds = bed.size.failing_seconds
    tell(f"failing: {seconds:g} s, then an hour in virtual time")
    tasks = [{"name": "Refuse", "ansible.builtin.fail": {"msg": "this can only fail"}}]
    async with running(bed.project("failing", tasks), FAILING, WARM) as operator:
        await operator.await_ready()
        await bed.client.request("POST", objects.path(FAILING), body=objects.body("hopeless"))
        await operator.await_line("Run started", name="hopeless")
        await asyncio.sleep(seconds)
        runs = await operator.await_lines(1, "Run started", name="hopeless")
    yield Result(CASE, "runs of a hopeless object in its first 30 s", len(runs), "runs", 6)
    first, hour = await asyncio.to_thread(scale_virtual.runs_of_a_hopeless_object)
    yield Result(CASE, "runs of a hopeless object in its first 30 s, virtual time", first, "runs", 6)
    yield Result(CASE, "runs of a hopeless object in its first hour, virtual time", hour, "runs", 12)


async def rest(bed: Bed) -> AsyncIterator[Result]:
    """What an object costs that was run and rests."""
    count = bed.size.objects
    tell(f"rest: creating {count} objects of {_OBJECT_BYTES} bytes")
    await objects.create(bed.client, REST, count, _OBJECT_BYTES)
    project = replace(bed.project("rest", trivial()), program=(sys.executable, *_INSTANT))
    none = await _resting(project, NONE, 0)
    many = await _resting(project, REST, count)
    yield Result(CASE, "memory of an object that was run and rests, RSS", (many[0] - none[0]) * _KIB / count, "KiB", 8)
    yield Result(CASE, "memory of an object that was run and rests, PSS", (many[1] - none[1]) * _KIB / count, "KiB", 8)
    yield Result(
        CASE, "operator's work for an object's first run, without Ansible", many[2] / count * 1000, "ms of CPU"
    )
    again = await _resting(project, REST, count)
    yield Result(
        CASE, "memory of an object that was there at start, RSS", (again[0] - none[0]) * _KIB / count, "KiB", 8
    )
    tell(f"rest: creating {count * _DEPENDENTS} ConfigMaps that the objects own")
    await _create_dependents(bed)
    await KindStore(FileState(project.runs)).save({_WATCHED: frozenset({_CONFIG_MAP})}, {})
    async with _rested(project, REST, count, kinds=1) as pid:
        # Each dependent of a kind without generation is read once.
        await until(lambda: _is_idle(pid), "the operator to have read all dependents", _REST_WITHIN)
        more = (process_stats.resident(pid) - again[0]) * _KIB / (count * _DEPENDENTS)
        yield Result(CASE, "memory of a dependent of an object that rests, RSS", more, "KiB")
        idle = await process_stats.cpu_percent(pid, _IDLE)
        yield Result(CASE, "CPU at rest with all objects and their dependents", idle, "% of a core", 1)


async def _create_dependents(bed: Bed) -> None:
    config_maps = f"/api/v1/namespaces/{REST}/configmaps"
    owners = [
        {"apiVersion": found["apiVersion"], "kind": found["kind"]}
        | {field: found["metadata"][field] for field in ("name", "uid")}
        for found in (await bed.client.request("GET", objects.path(REST)))["items"]
    ]

    def make(number: int) -> Coroutine[Any, Any, Object]:
        metadata = {"name": f"dependent-{number:06}", "ownerReferences": [owners[number // _DEPENDENTS]]}
        return bed.client.request("POST", config_maps, body={"metadata": metadata, "data": {"size": "3"}})

    await objects.concurrently(range(len(owners) * _DEPENDENTS), make)


async def skip(bed: Bed) -> AsyncIterator[Result]:
    """What it costs to find that an object need not be run."""
    count = bed.size.objects
    tell(f"skip: creating {count} objects of {_OBJECT_BYTES} bytes")
    await objects.create(bed.client, SKIP, count, _OBJECT_BYTES)
    project = replace(bed.project("skip", trivial(), skipUnchanged=True), program=(sys.executable, *_INSTANT))
    await _resting(project, SKIP, count)
    async with running(project, SKIP, "--log-level=info") as operator:
        await operator.await_ready()
        began, before = time.perf_counter(), process_stats.cpu_seconds(operator.pid)
        already = await metric(operator, "ansible_operator_skipped_runs_total")

        async def all_skipped() -> bool:
            await asyncio.sleep(0.2)
            return await metric(operator, "ansible_operator_skipped_runs_total") >= count

        await until(all_skipped, f"{count} objects to be left as they are", _REST_WITHIN)
        seconds, cpu = time.perf_counter() - began, process_stats.cpu_seconds(operator.pid) - before
    left = count - already
    yield Result(CASE, "resync of an object that has not changed", seconds / left * 1000, "ms", 5)
    yield Result(CASE, "resync of an object that has not changed, CPU", cpu / left * 1000, "ms")


async def _resting(project: Project, namespace: str, count: int) -> tuple[float, float, float]:
    """Bring all objects to rest; return memory (RSS, PSS, in MiB), and the CPU seconds since it was ready."""
    async with _rested(project, namespace, count) as pid:
        return process_stats.resident(pid), process_stats.proportional(pid), process_stats.cpu_seconds(pid)


@asynccontextmanager
async def _rested(project: Project, namespace: str, count: int, kinds: int = 0) -> AsyncIterator[int]:
    """Yield the process of an operator that has run all objects, and watches this number of kinds of dependents."""
    async with running(project, namespace, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_ready()

        async def all_ran() -> bool:
            await asyncio.sleep(0.5)
            done = await metric(operator, "controller_runtime_reconcile_total", result="success")
            waiting = await metric(operator, "workqueue_depth")
            watched = await metric(operator, "ansible_operator_dependents_watched")
            return done >= count and waiting == 0 and watched == kinds

        await until(all_ran, f"{count} objects to be run", _REST_WITHIN)
        await asyncio.sleep(_CALM)
        yield operator.pid


async def _is_idle(pid: int) -> bool:
    return await process_stats.cpu_percent(pid, 2.0) < _IDLE_BELOW


async def flat(bed: Bed) -> AsyncIterator[Result]:
    """What grows with runs, and with time."""
    runs = bed.size.long_runs
    tell(f"flat: {runs} runs of {_AT_ONCE} objects")
    async with running(bed.project("flat", trivial()), FLAT, WARM, "--log-level=info") as operator:
        await operator.await_ready()
        await _run_again(bed, operator, _WARM_UP)
        before = await _held(operator)
        began = time.perf_counter()
        await _run_again(bed, operator, runs)
        seconds = time.perf_counter() - began
        after = await _held(operator)
    names = ("memory, RSS", "memory of all processes, PSS", "open files", "processes")
    units = ("MiB", "MiB", "files", "processes")
    goals = (8, 16, 2, 0)
    for name, unit, goal, old, new in zip(names, units, goals, before, after, strict=True):
        yield Result(CASE, f"growth by many runs: {name}", new - old, unit, goal)
    yield Result(CASE, "runs a second", runs / seconds, "1/s", None, "higher")
    tell("flat: a day in virtual time")
    for result in await asyncio.to_thread(scale_virtual.a_day_of_resyncs, bed.size.objects // 10):
        yield result


async def _run_again(bed: Bed, operator: OperatorProcess, runs: int) -> None:
    """Create or change objects until there were as many runs more."""
    before = await metric(operator, "controller_runtime_reconcile_total", result="success")
    for turn in range(-(-runs // _AT_ONCE)):
        size = int(before) + turn
        await objects.concurrently(range(_AT_ONCE), lambda number, size=size: _touch(bed, f"flat-{number}", size))  # type: ignore[misc]
        await until(lambda: _all_succeeded(bed), "all to succeed", DEADLINE)


async def _all_succeeded(bed: Bed) -> bool:
    await asyncio.sleep(0.2)
    found = (await bed.client.request("GET", objects.path(FLAT)))["items"]
    return len(found) == _AT_ONCE and all(map(succeeded, found))


async def _touch(bed: Bed, name: str, size: int) -> dict[str, object]:
    body = {**objects.body(name), "spec": {"size": size}}
    params = {"fieldManager": "bench", "force": "true"}
    return await bed.client.request(
        "PATCH", objects.path(FLAT, name), params=params, body=body, content_type="application/apply-patch+yaml"
    )


async def _held(operator: OperatorProcess) -> tuple[float, float, float, float]:
    """What an operator holds that rests: the medians of some looks."""
    await asyncio.sleep(_CALM)
    looks = []
    for _ in range(5):
        await asyncio.sleep(0.5)
        pid = operator.pid
        looks.append(
            (
                process_stats.resident(pid),
                process_stats.proportional_of_tree(pid),
                float(process_stats.open_files(pid)),
                float(process_stats.below(pid)),
            )
        )
    first, second, third, fourth = (statistics.median(column) for column in zip(*looks, strict=True))
    return first, second, third, fourth
