"""Who waits: each of a burst of new objects of a small role, and one behind many that were there before."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator

from bench import objects, process_stats
from bench.bed import Bed
from bench.corpus import QUEUE
from bench.operator_process import OperatorProcess, Project, running
from bench.results import Result, size, tell
from bench.scale_bed import BEHIND, CASE, DISTANT, REPEATS, SMALL, WARM, succeeded
from tests.kit.wait import until
from tests.kit.wire import Wire

_BURSTS = [int(count) for count in size("SMALL_BURSTS", "20,150").split(",")]
_BEHIND = size("BEHIND", 40)
_SETTLED_RUNS = 6
"""Runs after which a fork server has seen what runs need."""
_SERVER_RENEWS = 12.0
"""Seconds in which it is replaced by one that has it loaded."""
_BURST_WITHIN = 900.0
_SAMPLE_EVERY = 1.0
"""Seconds between two samples of all processes' memory: the kernel walks all of their pages for each."""
_ROUND_TRIPS = {0: 0.4, 20: 0.6, 50: 0.95}
"""Milliseconds between operator and API server, and seconds in which a new object is to succeed."""
_LIST_EVERY = 1 / 80
"""Seconds between two lists of objects, per object: the benchmark must not take the API server's time from the runs."""


async def small(bed: Bed) -> AsyncIterator[Result]:
    """Measure new objects, alone and at once, and the memory of all processes meanwhile."""
    project = await _install(bed, "small")
    async with running(project, SMALL, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_ready()
        await _create_and_wait(bed, SMALL, _names("warm-up", _SETTLED_RUNS))
        await asyncio.sleep(_SERVER_RENEWS)
        alone = [await _alone(bed, operator, SMALL, name) for name in _names("alone", REPEATS)]
        yield Result(CASE, "small role, one new object, creation to success", statistics.median(alone), "s", 0.4)
        for count in _BURSTS:
            tell(f"small: {count} objects at once")
            seconds, peak = await _small_burst(bed, operator, SMALL, _names(f"at-once-{count}", count))
            yield Result(CASE, f"small role, {count} at once, objects a second", count / seconds, "1/s", 4, "higher")
            yield Result(CASE, f"small role, {count} at once, peak of all processes, PSS", peak, "MiB", 300)


async def behind(bed: Bed) -> AsyncIterator[Result]:
    """Measure a new object that comes while those that were present at start are run."""
    project = await _install(bed, "behind")
    await _create_all(bed, BEHIND, _names("present", _BEHIND))
    async with running(project, BEHIND, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_lines(_SETTLED_RUNS, "Run ended")
        seconds = await _create_and_wait(bed, BEHIND, ["newcomer"])
        ended = len(await operator.await_lines(_SETTLED_RUNS, "Run ended"))
    if ended > _BEHIND:
        tell("behind: all others were done before the new object came; too few for this machine")
    what = f"small role, a new object behind {_BEHIND} present at start, creation to success"
    yield Result(CASE, what, seconds, "s", 1)


async def distant(bed: Bed) -> AsyncIterator[Result]:
    """Measure a new object with an API server that is a round trip away, and how many round trips it waits for."""
    project, near = await _install(bed, "distant"), 0.0
    for milliseconds, goal in _ROUND_TRIPS.items():
        wire = Wire(bed.client.credentials.base_url, delay=milliseconds / 2000)
        kubeconfig = project.folder / f"kubeconfig-{milliseconds}"
        server = await wire.start()
        kubeconfig.write_text(bed.cluster.kubeconfig.read_text().replace(bed.client.credentials.base_url, server))
        there = Project(project.folder, kubeconfig)
        async with running(there, DISTANT, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
            await operator.await_ready()
            await _create_and_wait(bed, DISTANT, _names(f"warm-up-{milliseconds}", _SETTLED_RUNS))
            await asyncio.sleep(_SERVER_RENEWS)
            names = _names(f"alone-{milliseconds}", REPEATS * 2)
            seconds = statistics.median([await _alone(bed, operator, DISTANT, name) for name in names])
            count = _BURSTS[0]
            burst, peak = await _small_burst(bed, operator, DISTANT, _names(f"at-once-{milliseconds}", count))
            await bed.client.request("DELETE", QUEUE.path(DISTANT))  # the next operator would run them again
            await until(lambda: _are_gone(bed), "the objects to go")
        await wire.stop()
        what = f"small role, one new object, round trip of {milliseconds} ms"
        yield Result(CASE, f"{what}, creation to success", seconds, "s", goal)
        what_burst = f"small role, {count} at once, round trip of {milliseconds} ms"
        yield Result(CASE, f"{what_burst}, objects a second", count / burst, "1/s", None, "higher")
        yield Result(CASE, f"{what_burst}, peak of all processes, PSS", peak, "MiB")
        if milliseconds:
            yield Result(CASE, f"{what}, round trips waited for", (seconds - near) * 1000 / milliseconds, "round trips")
        else:
            near = seconds


async def _are_gone(bed: Bed) -> bool:
    return not (await bed.client.request("GET", QUEUE.path(DISTANT)))["items"]


async def _install(bed: Bed, name: str) -> Project:
    """Create the kind, and a project's folder that the operator runs in."""
    await objects.install_kind(bed.client, QUEUE.crd)
    folder = bed.folder / name
    await asyncio.to_thread(shutil.copytree, QUEUE.folder, folder)
    return Project(folder, bed.cluster.kubeconfig)


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:03}" for number in range(count)]


async def _create_all(bed: Bed, namespace: str, names: list[str]) -> None:
    await objects.concurrently(
        range(len(names)),
        lambda number: bed.client.request("POST", QUEUE.path(namespace), body=QUEUE.sample(names[number])),
    )


async def _alone(bed: Bed, operator: OperatorProcess, namespace: str, name: str) -> float:
    """Create an object; return when the run that follows as soon as its Deployment is ready has ended as well."""
    seconds = await _create_and_wait(bed, namespace, [name])
    await operator.await_line("Run ended", name=name, reason="dependent changed")
    return seconds


async def _create_and_wait(bed: Bed, namespace: str, names: list[str]) -> float:
    """Create objects at once; return the seconds until all have succeeded."""
    began = time.perf_counter()
    await _create_all(bed, namespace, names)

    async def are_done() -> bool:
        if len(names) == 1:
            return succeeded(await bed.client.request("GET", QUEUE.path(namespace, names[0])))
        await asyncio.sleep(len(names) * _LIST_EVERY)
        found = (await bed.client.request("GET", QUEUE.path(namespace)))["items"]
        return set(names) <= {obj["metadata"]["name"] for obj in found if succeeded(obj)}

    await until(are_done, f"{len(names)} objects to succeed", _BURST_WITHIN)
    return time.perf_counter() - began


async def _small_burst(bed: Bed, operator: OperatorProcess, namespace: str, names: list[str]) -> tuple[float, float]:
    """Create objects at once; return the seconds until all have succeeded, and the peak memory of all processes."""
    working = asyncio.create_task(_create_and_wait(bed, namespace, names))
    peak = 0.0
    while not working.done():
        pids = process_stats.tree(operator.pid)
        peak = max(peak, await asyncio.to_thread(process_stats.proportional_of, pids))
        await asyncio.sleep(_SAMPLE_EVERY)
    return await working, peak
