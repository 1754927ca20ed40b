"""What objects cost that rest."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from bench import objects, process_stats
from bench.bed import Bed
from bench.operator_process import Project, running
from bench.results import Result, tell
from bench.scale_bed import CASE, NONE, OBJECTS, REST, SKIP, metric, trivial
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


async def rest(bed: Bed) -> AsyncIterator[Result]:
    """What an object costs that was run and rests."""
    count = OBJECTS
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
    await KindStore(FileState(project.runs)).save({_WATCHED: frozenset({_CONFIG_MAP})})
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
    count = OBJECTS
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
