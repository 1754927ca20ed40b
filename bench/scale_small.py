"""The small role of the corpus: a new object alone, many at once, and one behind others that were there at start."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator

from bench import objects, process_stats
from bench.corpus import QUEUE
from bench.operator_process import OperatorProcess, Project, running
from bench.results import Result, tell
from bench.scale_bed import BEHIND, CASE, SMALL, WARM, Bed, succeeded, until
from runner.kube.client import PatchType

_SETTLED_RUNS = 6
"""Runs after which a fork server has seen what runs need."""
_SERVER_RENEWS = 12.0
"""Seconds in which it is replaced by one that has it loaded."""
_BURST_WITHIN = 900.0
_SAMPLE_EVERY = 1.0
"""Seconds between two samples of all processes' memory: the kernel walks all of their pages for each."""
_LIST_EVERY = 1 / 80
"""Seconds between two lists of objects, per object: the benchmark must not take the API server's time from the runs."""


async def small(bed: Bed) -> AsyncIterator[Result]:
    """Measure new objects, alone and at once, and the memory of all processes meanwhile."""
    project = await _install(bed, "small")
    async with running(project, SMALL, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_ready()
        await _create_and_wait(bed, SMALL, _names("warm-up", _SETTLED_RUNS))
        await asyncio.sleep(_SERVER_RENEWS)
        alone = [await _create_and_wait(bed, SMALL, [name]) for name in _names("alone", bed.size.repeats)]
        yield Result(CASE, "small role, one new object, creation to success", statistics.median(alone), "s", 0.4)
        for count in bed.size.small_bursts:
            tell(f"small: {count} objects at once")
            seconds, peak = await _burst(bed, operator, _names(f"at-once-{count}", count))
            yield Result(CASE, f"small role, {count} at once, objects a second", count / seconds, "1/s", 4, "higher")
            yield Result(CASE, f"small role, {count} at once, peak of all processes, PSS", peak, "MiB", 300)


async def behind(bed: Bed) -> AsyncIterator[Result]:
    """Measure a new object that comes while those that were present at start are run."""
    project = await _install(bed, "behind")
    await _create(bed, BEHIND, _names("present", bed.size.behind))
    async with running(project, BEHIND, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_lines(_SETTLED_RUNS, "Run ended")
        seconds = await _create_and_wait(bed, BEHIND, ["newcomer"])
        ended = len(await operator.await_lines(_SETTLED_RUNS, "Run ended"))
    if ended > bed.size.behind:
        tell("behind: all others were done before the new object came; too few for this machine")
    what = f"small role, a new object behind {bed.size.behind} present at start, creation to success"
    yield Result(CASE, what, seconds, "s", 1)


async def _install(bed: Bed, name: str) -> Project:
    """Create the kind, and a project's folder that the operator runs in."""
    crd = QUEUE.crd
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    apply = PatchType.APPLY.value
    await bed.client.request("PATCH", path, params={"fieldManager": "bench"}, body=crd, content_type=apply)
    folder = bed.folder / name
    await asyncio.to_thread(shutil.copytree, QUEUE.folder, folder)
    return Project(folder, bed.cluster.kubeconfig)


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:03}" for number in range(count)]


async def _create(bed: Bed, namespace: str, names: list[str]) -> None:
    await objects.concurrently(
        range(len(names)),
        lambda number: bed.client.request("POST", QUEUE.path(namespace), body=QUEUE.sample(names[number])),
    )


async def _create_and_wait(bed: Bed, namespace: str, names: list[str]) -> float:
    """Create objects at once; return the seconds until all have succeeded."""
    began = time.perf_counter()
    await _create(bed, namespace, names)

    async def are_done() -> bool:
        if len(names) == 1:
            return succeeded(await bed.client.request("GET", QUEUE.path(namespace, names[0])))
        await asyncio.sleep(len(names) * _LIST_EVERY)
        found = (await bed.client.request("GET", QUEUE.path(namespace)))["items"]
        return set(names) <= {obj["metadata"]["name"] for obj in found if succeeded(obj)}

    await until(are_done, f"{len(names)} objects to succeed", _BURST_WITHIN)
    return time.perf_counter() - began


async def _burst(bed: Bed, operator: OperatorProcess, names: list[str]) -> tuple[float, float]:
    """Create objects at once; return the seconds until all have succeeded, and the peak memory of all processes."""
    working = asyncio.create_task(_create_and_wait(bed, SMALL, names))
    peak = 0.0
    while not working.done():
        peak = max(peak, await asyncio.to_thread(_proportional, operator.pid))
        await asyncio.sleep(_SAMPLE_EVERY)
    return await working, peak


def _proportional(pid: int) -> float:
    """Return the memory of a process and all below it in MiB; processes that end meanwhile count nothing."""
    return sum(map(_of_one, process_stats.tree(pid)))


def _of_one(pid: int) -> float:
    try:
        return process_stats.proportional(pid)
    except (OSError, ValueError):
        return 0.0
