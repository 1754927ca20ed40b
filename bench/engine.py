"""What a run costs: the warm engine against `exec` on a corpus of roles. `python -m bench.engine`.

Both sides run the same roles (`bench/roles`) on the same objects, in the same folders, without facts, through the same
proxy. The role of a new object gets a new object for each run; all others run again on an object that has nothing left
to change. Before it is measured, each role runs on the warm engine until its fork server has loaded what runs need, and
once on `exec`.

1. Wall time (medians) and CPU (means) of both, and their ratio (how both are measured: `bench.engine_sides`).
2. Medians of what a task takes, by its module.
3. Memory that each of several runs at once adds, and of an idle fork server (PSS).

`CORE` names a tested ansible-core (such as `2.18`, or `all`); left out, it is that of this environment. `BENCH_CASES`
(names, with commas), `BENCH_REPEATS`, `BENCH_EXEC_REPEATS` (0: the warm engine only) and `BENCH_AT_ONCE` make it
smaller; `BENCH_WITHOUT` names shortcuts that are switched off.
"""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench import objects
from bench.bed import Bed as Place
from bench.bed import on_cluster
from bench.corpus import CASES, QUEUE, Case
from bench.engine_bed import NAMESPACE, Access, Bed, service
from bench.engine_sides import Cost, Runs
from bench.process_stats import proportional_of
from bench.results import Result, show, size, tell
from bench.standing import standing, tasks
from runner.base import log
from runner.base.config.settings import EngineName
from runner.core.engine.job import Event
from runner.engines.warm import tested

CORES = tuple(f"{major}.{minor}" for major, minor in tested.CORES)
_CASE = "engine"
_PROCESSORS = 2
_STANDING = "bench-engine-proxy"
_WARM_UP = 2
"""Runs after which a fork server has what this role's runs need."""
_GOALS: dict[tuple[str, bool], float] = {
    ("set_fact", False): 8,
    ("set_fact", True): 2,
    ("fail", True): 2,
    ("include_tasks", False): 5,
    ("debug", False): 3,
    ("k8s_status", False): 25,
}
"""Milliseconds that a task may take, by its module and whether it is skipped."""
_NEXT = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start", "playbook_on_stats"})
_SMALL_OBJECT = 40.0
"""Milliseconds that a `k8s` task with one small object may take."""
_TIMES_FASTER = 10.0
_REPEATS, _EXEC_REPEATS, _AT_ONCE = size("REPEATS", 5), size("EXEC_REPEATS", 2), size("AT_ONCE", 8)
_NAMED = size("CASES", ",".join(case.name for case in CASES)).split(",")
_WITHOUT = frozenset(filter(None, size("WITHOUT", "").split(",")))


@dataclass(frozen=True, slots=True)
class _Bench:
    core: str
    bed: Bed
    runs: Runs

    def result(self, what: str, value: float, unit: str, goal: float | None = None, *, higher: bool = False) -> Result:
        return Result(_CASE, f"core {self.core}, {what}", value, unit, goal, "higher" if higher else "lower")

    async def once(self, case: Case, engine: EngineName) -> Cost:
        return await self.runs.run([await self.bed.job(case)], engine)

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
    with service() as url:
        on_cluster(partial(_measure, own, url))


def _on(core: str) -> None:
    """Measure on a core in the environment that `hack/make-venv` makes for it."""
    venv = Path(".venvs", f"core-{core}")
    subprocess.run([str(Path("hack/make-venv").absolute()), str(venv), core], check=True, stdout=sys.stderr)
    environment = {**os.environ, "CORE": core}
    subprocess.run([str(venv / "bin/python"), "-m", "bench.engine"], check=True, env=environment)


async def _measure(core: str, url: str, place: Place) -> None:
    project = place.project("proxy", tasks(place.folder / "proxy"))
    await objects.install(place.client, (_STANDING, NAMESPACE))
    async with standing(place.client, project, _STANDING):
        handed = project.folder / _STANDING
        way = Access(*(handed.with_suffix(f".{what}").read_text(encoding="utf-8") for what in ("kubeconfig", "url")))
        runs = place.folder / "runs"
        bench = _Bench(core, Bed(place.client, runs, way, url, place.cluster.exec_container), Runs(runs, _WITHOUT))
        try:
            async for result in _results(bench):
                show(result)
        finally:
            await bench.runs.engine.close(0)


async def _results(bench: _Bench) -> AsyncIterator[Result]:
    for case in CASES:
        if case.name not in _NAMED:
            continue
        tell("core {}, {}; load average {:.1f}, {:.1f}, {:.1f}".format(bench.core, case.name, *os.getloadavg()))
        await bench.warm_up(case)
        async for result in _of_role(bench, case):
            yield result
    if QUEUE.name in _NAMED:
        async for result in _memory(bench):
            yield result


async def _of_role(bench: _Bench, case: Case) -> AsyncIterator[Result]:
    warm = [await bench.once(case, "warm") for _ in range(_REPEATS)]
    for result in _of_side(bench, case, "warm", warm):
        yield result
    if _EXEC_REPEATS:
        cold = [await bench.once(case, "exec") for _ in range(1 + _EXEC_REPEATS)][1:]
        for result in _of_side(bench, case, "exec", cold):
            yield result
        for result in _ratios(bench, case, cold, warm):
            yield result
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
            for task in _times(events):
                found[task.action, task.skipped].append(task.seconds * 1000)
    goals = _GOALS | ({("k8s", False): _SMALL_OBJECT} if case.small_objects else {})
    for (action, skipped), milliseconds in sorted(found.items()):
        how = "skipped" if skipped else "executed"
        count = len(milliseconds) // _REPEATS
        what = f"{case.name}: {how} {action}, median of {count}"
        yield bench.result(what, statistics.median(milliseconds), "ms", goals.get((action, skipped)))


@dataclass(frozen=True, slots=True)
class _TaskTime:
    """One task of a run."""

    action: str
    """Short name of the module or action: `set_fact`."""
    skipped: bool
    seconds: float


def _times(events: Iterable[Event]) -> Iterator[_TaskTime]:
    """Yield the tasks of a run on one host, in order.

    A task lasts from the event of its start to that of the next one's: with all that Ansible does for it.
    """
    start: Event | None = None
    skipped = False
    for event in sorted(events, key=lambda event: int(event["counter"])):
        if event["event"] in _NEXT:
            if start is not None:
                yield _TaskTime(_action(start), skipped, (_moment(event) - _moment(start)).total_seconds())
            start, skipped = event, False
        skipped |= event["event"] == "runner_on_skipped"


def _action(start: Event) -> str:
    return str(start["event_data"].get("task_action", "")).rpartition(".")[2]


def _moment(event: Event) -> datetime:
    return datetime.fromisoformat(event["created"])


async def _memory(bench: _Bench) -> AsyncIterator[Result]:
    if not _AT_ONCE:
        return
    jobs = [await bench.bed.job(QUEUE) for _ in range(_AT_ONCE)]
    added = await bench.runs.added_memory(jobs) / len(jobs)
    yield bench.result(f"{QUEUE.name}: memory added by each of {len(jobs)} at once, peak PSS", added, "MiB", 45)
    await bench.runs.engine.settle()
    yield bench.result("idle fork server, PSS", proportional_of(bench.runs.engine.pool.servers()), "MiB", 80)


def _median(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.wall for cost in costs)


def _mean(costs: Sequence[Cost]) -> float:
    return statistics.mean(cost.cpu for cost in costs)


if __name__ == "__main__":
    main()
