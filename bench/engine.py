"""What a run costs: the warm engine against `exec` on a corpus of roles. `python -m bench.engine`.

Both sides run the same roles (`bench/roles`) on the same objects, in the same folders, without facts, through the same
proxy. The role of a new object gets a new object for each run; all others run again on an object that has nothing left
to change. Before it is measured, each role runs on the warm engine until its fork server has loaded what runs need, and
once on `exec`.

1. Wall time (medians) and CPU (means) of both, and their ratio (how both are measured: `bench.engine_sides`).
2. The time of a run by that of a client which makes the same API calls, in the same order on one connection, and
   nothing else: they were recorded on their way to the proxy.
3. Medians of what a task takes, by its module (see `bench.task_times`).
4. Memory that each of several runs at once adds, and of an idle fork server (PSS).

`CORE` names a tested ansible-core (such as `2.18`, or `all`); left out, it is that of this environment. `BENCH_CASES`
(names, with commas), `BENCH_REPEATS`, `BENCH_EXEC_REPEATS` (0: the warm engine only) and `BENCH_AT_ONCE` make it
smaller; `BENCH_WITHOUT` names shortcuts that are switched off.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from bench import objects, task_times
from bench.corpus import CASES, QUEUE, Case
from bench.engine_bed import NAMESPACE, Access, Bed, service
from bench.engine_sides import Cost, Runs, memory
from bench.operator_process import Project
from bench.recorder import Call, recording, replay
from bench.results import Result, show, tell
from bench.standing import standing, tasks
from runner.base import log
from runner.base.config.settings import EngineName
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.engines.warm import tested
from runner.sdk import devcluster

CORES = tuple(f"{major}.{minor}" for major, minor in tested.CORES)
_CASE = "engine"
_PROCESSORS = 2
_STANDING = "bench-engine-proxy"
_WARM_UP = 2
"""Runs after which a fork server has what this role's runs need."""
_REPLAYS = 3
_GOALS: dict[tuple[str, bool], float] = {
    ("set_fact", False): 8,
    ("set_fact", True): 2,
    ("fail", True): 2,
    ("include_tasks", False): 5,
    ("debug", False): 3,
    ("k8s_status", False): 25,
}
"""Milliseconds that a task may take, by its module and whether it is skipped."""
_SMALL_OBJECT = 40.0
"""Milliseconds that a `k8s` task with one small object may take."""
_TIMES_FASTER = 10.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    cases: frozenset[str]
    repeats: int
    exec_repeats: int
    at_once: int
    without: frozenset[str]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        names = ",".join(case.name for case in CASES)
        return cls(
            cases=frozenset(environ.get("BENCH_CASES", names).split(",")),
            repeats=int(environ.get("BENCH_REPEATS", "5")),
            exec_repeats=int(environ.get("BENCH_EXEC_REPEATS", "2")),
            at_once=int(environ.get("BENCH_AT_ONCE", "8")),
            without=frozenset(filter(None, environ.get("BENCH_WITHOUT", "").split(","))),
        )


@dataclass(frozen=True, slots=True)
class _Bench:
    core: str
    bed: Bed
    runs: Runs
    size: Size

    def result(self, what: str, value: float, unit: str, goal: float | None = None, *, higher: bool = False) -> Result:
        return Result(_CASE, f"core {self.core}, {what}", value, unit, goal, "higher" if higher else "lower")

    async def once(self, case: Case, engine: EngineName, way: Access | None = None) -> Cost:
        return await self.runs.run([await self.bed.job(case, way)], engine)

    async def warm_up(self, case: Case) -> None:
        await self.bed.install(case)
        self.runs.engine.expect([case.watch.content], self.bed.environment())
        for _ in range(_WARM_UP):
            await self.runs.engine.settle()
            await self.once(case, "warm")
        await self.runs.engine.settle()


def main() -> None:
    """Measure on one core in this environment, or on each named core in one of its own."""
    own = ".".join(version("ansible-core").split(".")[:2])
    wanted = os.environ.get("CORE") or own
    if wanted != own:
        for core in CORES if wanted == "all" else (wanted,):
            _on(core)
        return
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_PROCESSORS])
    with ExitStack() as stack:
        cluster = stack.enter_context(devcluster.start(name="bench", progress=sys.stderr))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ansible-operator-bench-"))
        url = stack.enter_context(service())
        asyncio.run(_measure(own, cluster, Path(folder), url))


def _on(core: str) -> None:
    """Measure on a core in the environment that `hack/make-venv` makes for it."""
    venv = Path(".venvs", f"core-{core}")
    subprocess.run([str(Path("hack/make-venv").absolute()), str(venv), core], check=True, stdout=sys.stderr)
    environment = {**os.environ, "CORE": core}
    subprocess.run([str(venv / "bin/python"), "-m", "bench.engine"], check=True, env=environment)


async def _measure(core: str, cluster: devcluster.DevCluster, folder: Path, url: str) -> None:
    size, kubeconfig = Size.of(os.environ), cluster.kubeconfig
    project = Project.make(folder / "proxy", kubeconfig, tasks(folder / "proxy"))
    async with Client(await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        await objects.install(client, (_STANDING, NAMESPACE))
        async with standing(client, project, _STANDING):
            handed = project.folder / _STANDING
            way = Access(
                *(handed.with_suffix(f".{what}").read_text(encoding="utf-8") for what in ("kubeconfig", "url"))
            )
            bed = Bed(client, folder / "runs", way, url, cluster.exec_container)
            bench = _Bench(core, bed, Runs(folder / "runs", size.without), size)
            try:
                async for result in _results(bench):
                    show(result)
            finally:
                await bench.runs.engine.close(0)


async def _results(bench: _Bench) -> AsyncIterator[Result]:
    for case in CASES:
        if case.name not in bench.size.cases:
            continue
        tell("core {}, {}; load average {:.1f}, {:.1f}, {:.1f}".format(bench.core, case.name, *os.getloadavg()))
        await bench.warm_up(case)
        async for result in _of_role(bench, case):
            yield result
    if QUEUE.name in bench.size.cases:
        async for result in _memory(bench):
            yield result


async def _of_role(bench: _Bench, case: Case) -> AsyncIterator[Result]:
    warm = [await bench.once(case, "warm") for _ in range(bench.size.repeats)]
    for result in _of_side(bench, case, "warm", warm):
        yield result
    if bench.size.exec_repeats:
        cold = [await bench.once(case, "exec") for _ in range(1 + bench.size.exec_repeats)][1:]
        for result in _of_side(bench, case, "exec", cold):
            yield result
        for result in _ratios(bench, case, cold, warm):
            yield result
    calls, bare = await _bare(bench, case)
    yield bench.result(f"{case.name}: API calls", calls, "calls")
    yield bench.result(f"{case.name}: the same API calls alone", bare, "s")
    yield bench.result(f"{case.name}: warm, in times of its API calls", _median(warm) / bare, "ratio")
    for result in _of_tasks(bench, case, warm):
        yield result


def _of_side(bench: _Bench, case: Case, side: str, costs: Sequence[Cost]) -> Iterator[Result]:
    goal = 2.5 if (case.name, side) == ("portal", "warm") else None
    yield bench.result(f"{case.name}: {side}, wall", _median(costs), "s", goal)
    yield bench.result(f"{case.name}: {side}, CPU", _mean(costs), "s")


def _ratios(bench: _Bench, case: Case, cold: Sequence[Cost], warm: Sequence[Cost]) -> Iterator[Result]:
    did = {cost.recaps for cost in (*cold, *warm)}
    if len(did) != 1:
        raise RuntimeError(f"runs of {case.name} did different things (ok, changed, skipped, failed): {did}")
    for name, ratio in (("wall", _median(cold) / _median(warm)), ("CPU", _mean(cold) / _mean(warm))):
        yield bench.result(f"{case.name}: exec by warm, {name}", ratio, "ratio", _TIMES_FASTER, higher=True)


def _of_tasks(bench: _Bench, case: Case, costs: Iterable[Cost]) -> Iterator[Result]:
    """Return the median of each module's tasks, over all runs."""
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for cost in costs:
        for events in cost.events:
            for task in task_times.times(events):
                found[task.action, task.skipped].append(task.seconds * 1000)
    goals = _GOALS | ({("k8s", False): _SMALL_OBJECT} if case.small_objects else {})
    for (action, skipped), milliseconds in sorted(found.items()):
        how = "skipped" if skipped else "executed"
        count = len(milliseconds) // bench.size.repeats
        what = f"{case.name}: {how} {action}, median of {count}"
        yield bench.result(what, statistics.median(milliseconds), "ms", goals.get((action, skipped)))


async def _memory(bench: _Bench) -> AsyncIterator[Result]:
    if not bench.size.at_once:
        return
    jobs = [await bench.bed.job(QUEUE) for _ in range(bench.size.at_once)]
    added = await bench.runs.added_memory(jobs) / len(jobs)
    yield bench.result(f"{QUEUE.name}: memory added by each of {len(jobs)} at once, peak PSS", added, "MiB", 45)
    await bench.runs.engine.settle()
    yield bench.result("idle fork server, PSS", memory(bench.runs.engine.pool.servers()), "MiB", 80)


def _median(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall for cost in costs)


def _mean(costs: Sequence[Cost]) -> float:
    return statistics.mean(cost.cpu for cost in costs)


async def _bare(bench: _Bench, case: Case) -> tuple[int, float]:
    """Return how many API calls a run makes, and the seconds that they take a client that does nothing else."""
    server = urlsplit(json.loads(bench.bed.way.kubeconfig)["clusters"][0]["cluster"]["server"])
    host, port = server.hostname or "", server.port or 0
    async with recording(host, port) as relay:
        await bench.once(case, "warm", bench.bed.way.through(relay.port))
    seconds = []
    for _ in range(_REPLAYS):
        for path in _created(relay.calls):
            await bench.bed.delete(path)
        seconds.append(await asyncio.to_thread(replay, host, port, relay.calls))
    return len(relay.calls), statistics.median(seconds)


def _created(calls: Iterable[Call]) -> Iterator[str]:
    """Name the objects that calls created."""
    for call in calls:
        name = json.loads(call.body).get("metadata", {}).get("name") if call.method == "POST" else None
        if name:
            yield f"{call.target.partition('?')[0]}/{name}"


if __name__ == "__main__":
    started = time.monotonic()
    main()
    tell(f"took {time.monotonic() - started:.0f} s")
