"""Who waits: a newcomer behind many that were there before, and each of a burst; with the sample's and a small role."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from bench import objects, process_stats
from bench.corpus import QUEUE
from bench.operator_process import OperatorProcess, Project, running
from bench.results import Result, tell
from bench.scale_bed import BEHIND, BURST, CASE, DISTANT, PRESENT, SMALL, WARM, Bed, succeeded, trivial
from runner.core.kube.client import PatchType
from tests.kit.wait import until
from tests.kit.wire import Wire

_ROOT = Path(__file__).resolve().parents[1]
_CRD = _ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml"
_MEMCACHEDS = f"/apis/cache.example.com/v1alpha1/namespaces/{BURST}/memcacheds"
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


async def newcomer(bed: Bed) -> AsyncIterator[Result]:
    """How long an object takes that comes when many others wait, in run times."""
    size = bed.size
    await objects.concurrently(
        range(size.present),
        lambda number: bed.client.request("POST", objects.path(PRESENT), body=objects.body(f"present-{number:05}")),
    )
    async with running(bed.project("present", trivial()), PRESENT, WARM) as operator:
        await operator.await_lines(_SETTLED_RUNS, "Run ended")
        waits = [await _wait_of(bed, f"newcomer-{number}") for number in range(size.repeats)]
        ended = await operator.await_lines(_SETTLED_RUNS, "Run ended")
    if len(ended) >= size.present + size.repeats:
        tell("newcomer: all others were done before the last newcomer came; too few for this machine")
    run = statistics.median(line["seconds"] for line in ended[_SETTLED_RUNS // 2 :])
    yield Result(
        CASE, "creation to success with many present, in run times", statistics.median(waits) / run, "ratio", 3
    )
    yield Result(CASE, "creation to success with many present, slowest", max(waits) / run, "ratio", 3)
    yield Result(CASE, "run time meanwhile", run, "s")


async def _wait_of(bed: Bed, name: str) -> float:
    began = time.perf_counter()
    await bed.client.request("POST", objects.path(PRESENT), body=objects.body(name))

    async def is_done() -> bool:
        return succeeded(await bed.client.request("GET", objects.path(PRESENT, name)))

    await until(is_done, f"{name} to succeed")
    return time.perf_counter() - began


async def burst(bed: Bed) -> AsyncIterator[Result]:
    """What each of many objects that come at once costs, against one at a time; with the sample operator."""
    for document in yaml.safe_load_all(_CRD.read_text(encoding="utf-8")):
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{document['metadata']['name']}"
        await bed.client.request(
            "PATCH", path, params={"fieldManager": "bench"}, body=document, content_type=PatchType.APPLY.value
        )
    project = Project.sample(bed.folder / "sample", bed.cluster.kubeconfig)
    async with running(project, BURST, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_ready()
        await _together(bed, operator, "warm-up", _SETTLED_RUNS, at_once=2)
        await asyncio.sleep(_SERVER_RENEWS)
        alone = await _together(bed, operator, "alone", bed.size.repeats * 2, at_once=1)
        many = await _together(bed, operator, "burst", bed.size.burst, at_once=bed.size.burst)
    yield Result(CASE, "objects of a burst a second", 1 / many.seconds, "1/s", 4, "higher")
    yield Result(CASE, "CPU of an object in a burst, operator and runs", many.operator, "s")
    yield Result(CASE, "CPU of an object in a burst, control plane", many.control_plane, "s")
    yield Result(CASE, "CPU of an object alone, operator and runs", alone.operator, "s")
    yield Result(CASE, "CPU of an object alone, control plane", alone.control_plane, "s")
    yield Result(CASE, "time of an object alone", alone.seconds, "s")
    yield Result(
        CASE, "CPU of an object in a burst, in those of one alone", many.operator / alone.operator, "ratio", 1.1
    )
    yield Result(
        CASE, "objects of a burst a second that this CPU time allows on two cores", 2 / many.all, "1/s", None, "higher"
    )


class Cost:
    """What one of `count` objects took: wall time, and CPU of both sides."""

    def __init__(self, count: int, seconds: float, operator: float, control_plane: float) -> None:
        self.seconds, self.operator, self.control_plane = seconds / count, operator / count, control_plane / count

    @property
    def all(self) -> float:
        """CPU seconds, all told."""
        return self.operator + self.control_plane


async def _together(bed: Bed, operator: OperatorProcess, name: str, count: int, at_once: int) -> Cost:
    """Create objects, `at_once` at a time, and wait until each has succeeded."""
    tell(f"burst: {count} objects, {at_once} at once")
    began = time.perf_counter()
    cpu, control = process_stats.cpu_seconds_of_tree(operator.pid), bed.control_plane_cpu()
    for first in range(0, count, at_once):
        names = [f"{name}-{number:04}" for number in range(first, min(first + at_once, count))]
        await objects.concurrently(range(len(names)), lambda number, names=names: _create(bed, names[number]))  # type: ignore[misc]
        await _all_done(bed, set(names))
    seconds = time.perf_counter() - began
    # Runs that have ended are counted when they are waited for, a moment after their status.
    await asyncio.sleep(0.3)
    return Cost(
        count,
        seconds,
        process_stats.cpu_seconds_of_tree(operator.pid) - cpu,
        bed.control_plane_cpu() - control,
    )


async def _create(bed: Bed, name: str) -> dict[str, Any]:
    body = {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": name},
        "spec": {"size": 1},
    }
    return await bed.client.request("POST", _MEMCACHEDS, body=body)


async def _all_done(bed: Bed, names: set[str]) -> None:
    """Wait for all; asks seldom where there are many, so that asking costs nothing that counts."""

    async def are_done() -> bool:
        if len(names) == 1:
            return succeeded(await bed.client.request("GET", f"{_MEMCACHEDS}/{next(iter(names))}"))
        await asyncio.sleep(1)
        found = (await bed.client.request("GET", _MEMCACHEDS))["items"]
        return names <= {obj["metadata"]["name"] for obj in found if succeeded(obj)}

    await until(are_done, f"{len(names)} objects to succeed", _BURST_WITHIN)


async def small(bed: Bed) -> AsyncIterator[Result]:
    """Measure new objects, alone and at once, and the memory of all processes meanwhile."""
    project = await _install(bed, "small")
    async with running(project, SMALL, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_ready()
        await _create_and_wait(bed, SMALL, _names("warm-up", _SETTLED_RUNS))
        await asyncio.sleep(_SERVER_RENEWS)
        alone = [await _alone(bed, operator, SMALL, name) for name in _names("alone", bed.size.repeats)]
        yield Result(CASE, "small role, one new object, creation to success", statistics.median(alone), "s", 0.4)
        for count in bed.size.small_bursts:
            tell(f"small: {count} objects at once")
            seconds, peak = await _small_burst(bed, operator, SMALL, _names(f"at-once-{count}", count))
            yield Result(CASE, f"small role, {count} at once, objects a second", count / seconds, "1/s", 4, "higher")
            yield Result(CASE, f"small role, {count} at once, peak of all processes, PSS", peak, "MiB", 300)


async def behind(bed: Bed) -> AsyncIterator[Result]:
    """Measure a new object that comes while those that were present at start are run."""
    project = await _install(bed, "behind")
    await _create_all(bed, BEHIND, _names("present", bed.size.behind))
    async with running(project, BEHIND, WARM, "--log-level=info", "--ansible-log-events=nothing") as operator:
        await operator.await_lines(_SETTLED_RUNS, "Run ended")
        seconds = await _create_and_wait(bed, BEHIND, ["newcomer"])
        ended = len(await operator.await_lines(_SETTLED_RUNS, "Run ended"))
    if ended > bed.size.behind:
        tell("behind: all others were done before the new object came; too few for this machine")
    what = f"small role, a new object behind {bed.size.behind} present at start, creation to success"
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
            names = _names(f"alone-{milliseconds}", bed.size.repeats * 2)
            seconds = statistics.median([await _alone(bed, operator, DISTANT, name) for name in names])
            count = bed.size.small_bursts[0]
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
    crd = QUEUE.crd
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    apply = PatchType.APPLY.value
    await bed.client.request("PATCH", path, params={"fieldManager": "bench"}, body=crd, content_type=apply)
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
