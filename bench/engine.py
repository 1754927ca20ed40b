"""What a run costs: the warm engine against ansible-runner's own command line. `python -m bench.engine`.

Both sides run the same roles (`bench/engine_cases`, and the sample) on the same objects, in the same folders, without
facts, through the same proxy, and take turns. Each figure is a ratio, cold by warm, of the medians of wall time and of
the means of CPU (how both are measured: `bench.engine_sides`). Each case runs once on each side before it is measured,
and so does what it needs in the cluster. One case runs several at once, on two cores.

Memory is the proportional set size of all processes of the runs and of the fork servers, above what the idle fork
servers had. The distance to the limit is the time of a run by that of a client which makes the same API calls, in the
same order on one connection, and nothing else: they were recorded on their way to the proxy.

`BENCH_CASES` (names, with commas), `BENCH_REPEATS` and `BENCH_AT_ONCE` make it smaller.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench import objects
from bench.engine_bed import CASES, NAMESPACE, TOGETHER, Bed, Case, through
from bench.engine_sides import Cold, Cost, Side, Warm, added_memory, memory
from bench.operator_process import Project
from bench.recorder import recording, replay
from bench.results import Result, show, tell
from bench.standing import standing, tasks
from runner import devcluster, log
from runner.engine.job import Job
from runner.kube.client import Client
from runner.kube.credentials import auth

_CASE = "engine"
_CORES = 2
_STANDING = "bench-engine-proxy"
_REPLAYS = 5
_IDENTS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    cases: frozenset[str]
    repeats: int
    at_once: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        names = ",".join([*(case.name for case in CASES), TOGETHER.name])
        return cls(
            cases=frozenset(environ.get("BENCH_CASES", names).split(",")),
            repeats=int(environ.get("BENCH_REPEATS", "5")),
            at_once=int(environ.get("BENCH_AT_ONCE", "8")),
        )


@dataclass(frozen=True, slots=True)
class _Sides:
    bed: Bed
    cold: Cold
    warm: Warm

    async def once(self, side: Side, case: Case, numbers: Sequence[int], kubeconfig: str = "") -> Cost:
        """Run a case for some objects, with what it finds undone undone."""
        if case.before:
            await case.before(self.bed)
        return await side.run(self.jobs(case, numbers, kubeconfig))

    def jobs(self, case: Case, numbers: Sequence[int], kubeconfig: str = "") -> list[Job]:
        way = kubeconfig or self.bed.kubeconfig
        return [self.bed.job(f"run-{next(_IDENTS)}", case.role, number, way) for number in numbers]

    async def in_turns(self, case: Case, numbers: Sequence[int], repeats: int) -> tuple[list[Cost], list[Cost]]:
        """Run a case on both sides, again and again; what they did must be the same."""
        cold: list[Cost] = []
        warm: list[Cost] = []
        for number in range(1 + repeats):
            both = await self.once(self.cold, case, numbers), await self.once(self.warm, case, numbers)
            if number == 0:
                await self.warm.engine.settle()  # what it showed is loaded ahead now, and its costs are no later run's
                continue
            if both[0].did != both[1].did:
                raise RuntimeError(f"{case.name}: cold did {both[0].did}, warm did {both[1].did}")
            cold.append(both[0])
            warm.append(both[1])
        return cold, warm


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CORES])
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(cluster.kubeconfig, Path(folder), Size.of(os.environ)))


async def _measure(kubeconfig: Path, folder: Path, size: Size) -> None:
    project = Project.make(folder / "proxy", kubeconfig, tasks(folder / "proxy"))
    async with Client(await auth.load(str(kubeconfig), None)) as client:
        await objects.install(client, (_STANDING, NAMESPACE))
        async with standing(client, project, _STANDING):
            way = (project.folder / f"{_STANDING}.kubeconfig").read_text(encoding="utf-8")
            bed = Bed(client, folder, way)
            await bed.make_objects(size.at_once)
            sides = _Sides(bed, Cold(folder / "runs"), Warm(folder / "runs"))
            try:
                async for result in _results(sides, size):
                    show(result)
            finally:
                await sides.warm.engine.close(0)


async def _results(sides: _Sides, size: Size) -> AsyncIterator[Result]:
    for case in CASES:
        if case.name in size.cases:
            _tell(case.title)
            async for result in _alone(sides, case, size):
                yield result
    if TOGETHER.name in size.cases:
        _tell(TOGETHER.title.format(size.at_once))
        async for result in _together(sides, size):
            yield result
    idle = memory(sides.warm.engine.servers)
    yield Result(_CASE, "idle fork server, PSS", idle, "MiB", 80)


def _tell(title: str) -> None:
    tell("{}; load average {:.1f}, {:.1f}, {:.1f}".format(title, *os.getloadavg()))


async def _alone(sides: _Sides, case: Case, size: Size) -> AsyncIterator[Result]:
    cold, warm = await sides.in_turns(case, [0], size.repeats)
    for result in _ratios(case, case.title, cold, warm):
        yield result
    calls, bare = await _bare(sides, case)
    yield Result(_CASE, f"{case.title}: API calls", calls, "calls")
    yield Result(_CASE, f"{case.title}: the same API calls alone", bare, "s")
    yield Result(_CASE, f"{case.title}: warm, in times of its API calls", _median(warm) / bare, "ratio")


async def _together(sides: _Sides, size: Size) -> AsyncIterator[Result]:
    numbers = range(size.at_once)
    title = TOGETHER.title.format(size.at_once)
    cold, warm = await sides.in_turns(TOGETHER, numbers, size.repeats)
    for result in _ratios(TOGETHER, title, cold, warm):
        yield result
    for name, side, goal in (("cold", sides.cold, None), ("warm", sides.warm, 45)):
        added = await added_memory(side, sides.jobs(TOGETHER, numbers)) / size.at_once
        yield Result(_CASE, f"{title}: memory added for each, {name}, peak PSS", added, "MiB", goal)


def _ratios(case: Case, title: str, cold: Sequence[Cost], warm: Sequence[Cost]) -> Iterable[Result]:
    walls = _median(cold), _median(warm)
    cpus = _mean(cold), _mean(warm)
    for name, (first, second) in (("wall", walls), ("CPU", cpus)):
        yield Result(_CASE, f"{title}: cold by warm, {name}", first / second, "ratio", case.goal, "higher")
    for name, (first, second) in (("wall", walls), ("CPU", cpus)):
        yield Result(_CASE, f"{title}: cold, {name}", first, "s")
        yield Result(_CASE, f"{title}: warm, {name}", second, "s")


def _median(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall for cost in costs)


def _mean(costs: Sequence[Cost]) -> float:
    return statistics.mean(cost.cpu for cost in costs)


async def _bare(sides: _Sides, case: Case) -> tuple[int, float]:
    """Return how many API calls a run makes, and the seconds that they take a client that does nothing else."""
    server = urlsplit(json.loads(sides.bed.kubeconfig)["clusters"][0]["cluster"]["server"])
    host, port = server.hostname or "", server.port or 0
    async with recording(host, port) as relay:
        await sides.once(sides.warm, case, [0], through(sides.bed.kubeconfig, relay.port))
    seconds = []
    for _ in range(_REPLAYS):
        if case.before:
            await case.before(sides.bed)
        began = time.perf_counter()
        seconds.append(await asyncio.to_thread(replay, host, port, relay.calls))
        tell(f"{case.name}: {len(relay.calls)} calls in {time.perf_counter() - began:.3f} s")
    return len(relay.calls), statistics.median(seconds)


if __name__ == "__main__":
    main()
