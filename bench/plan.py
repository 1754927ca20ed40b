"""What a plan costs: against a run of the same resource, and for a fleet. `python -m bench.plan`.

1. The sample operator runs each of the resources until nothing is left to change. One of them is run again, as often
   as `BENCH_REPEATS` says (5), and then planned as often in one process: medians of both, and their ratio.
2. The operator checks each resource for drift once: CPU time of a check, without that of the idle operator and of the
   control plane. From it follows the share of a core for 500 resources at a period of one hour.
3. The role is edited, so that each resource has a change. The installed command plans all: resources a second, with
   and without its own start.

`BENCH_RESOURCES` (200) is the number of resources. All of it runs on two processors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from bench.operator_process import DEADLINE, OperatorProcess, Project, running
from bench.process_stats import cpu_seconds_of_tree
from bench.results import Result, show, tell
from runner.app.features import FEATURE_FIELDS
from runner.base import log
from runner.base.config import sources
from runner.base.config.settings import Settings
from runner.base.credentials import auth
from runner.core.kube.client import Client, PatchType
from runner.core.watches import watch as watches
from runner.sdk import devcluster
from runner.sdk.preview.planner import Planner, PlanRuntime
from runner.sdk.preview.progress import Progress
from runner.sdk.preview.selection import ResourceSelection, Selector, Target
from runner.values.errors import ApiError
from runner.values.objects import RUN_REQUESTED

_CASE = "plan"
_NAMESPACE = "bench-plan"
_PROCESSORS = 2
_ROOT = Path(__file__).resolve().parents[1]
_PATH = f"/apis/cache.example.com/v1alpha1/namespaces/{_NAMESPACE}/memcacheds"
_CHANGED = 2
"""Exit code for changes."""
_LOOK = 0.1
_CHECK_EACH = 0.6
"""Seconds from one drift check to the next: more than a check takes."""
_CHECK_LEAST = 10.0
_LOOKS = 20
"""How often the metrics are read in a period: each reading costs the operator CPU time."""
_SETTLE = 3.0
_IDLE_SECONDS = 10.0
_IDLE = 500
_HOUR = 3600
_MOST_SHARE = 5.0
_TIMES_A_RUN = 1.3
_A_SECOND = 3.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    resources: int
    repeats: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        return cls(int(environ.get("BENCH_RESOURCES", "200")), int(environ.get("BENCH_REPEATS", "5")))


def main() -> None:
    """Measure in a control plane of its own."""
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_PROCESSORS])
    size = Size.of(os.environ)
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        project = _project(Path(folder), cluster.kubeconfig)
        results, idle = asyncio.run(_single(project, size))
        for result in (*results, *asyncio.run(_drift(project, size, idle))):
            show(result)
        for result in _fleet(project, size):
            show(result)


def _project(folder: Path, kubeconfig: Path) -> Project:
    """Copy the sample operator, because its role is edited."""
    shutil.copytree(_ROOT / "roles", folder / "roles")
    shutil.copy(_ROOT / "watches.yaml", folder)
    return Project(folder, kubeconfig)


async def _single(project: Project, size: Size) -> tuple[list[Result], float]:
    """Run every resource once, and one of them again and again; then plan that one.

    Returns the CPU time of the idle operator in a second, too.
    """
    names = [f"m{number}" for number in range(size.resources)]
    async with Client(await auth.load(str(project.kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        await _install(client, names)
        async with running(project, _NAMESPACE) as operator:
            tell(f"the operator runs {len(names)} resources")
            await operator.await_ready()
            for name in names:
                await operator.await_line("Run ended", name=name, outcome="succeeded")
            run = await _run_again(client, operator, names[0], size.repeats)
            idle = await _idle(operator)
        plan = await _plan_again(client, project, names[0], size.repeats)
    return [
        Result(_CASE, "run of a resource, median", run, "s"),
        Result(_CASE, "plan of a resource, median", plan, "s"),
        Result(_CASE, "plan in times of a run", plan / run, "ratio", _TIMES_A_RUN),
    ], idle


async def _idle(operator: OperatorProcess) -> float:
    await asyncio.sleep(_SETTLE)
    before, began = cpu_seconds_of_tree(operator.pid), time.monotonic()
    await asyncio.sleep(_IDLE_SECONDS)
    return (cpu_seconds_of_tree(operator.pid) - before) / (time.monotonic() - began)


async def _install(client: Client, names: list[str]) -> None:
    file = _ROOT / "config/crd/bases/cache.example.com_memcacheds.yaml"
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))
    await _apply(client, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    await _apply(client, f"/api/v1/namespaces/{_NAMESPACE}", space)
    async with asyncio.timeout(DEADLINE):
        for _ in itertools.count():
            if await _is_served(client):
                break
            await asyncio.sleep(_LOOK)
    for name in names:
        body = {
            "apiVersion": "cache.example.com/v1alpha1",
            "kind": "Memcached",
            "metadata": {"name": name},
            "spec": {"size": 1},
        }
        await _apply(client, f"{_PATH}/{name}", body)


async def _apply(client: Client, path: str, body: object) -> None:
    apply = PatchType.APPLY.value
    await client.request("PATCH", path, params={"fieldManager": "bench"}, body=body, content_type=apply)


async def _is_served(client: Client) -> bool:
    try:
        await client.request("GET", _PATH)
    except ApiError:
        return False
    return True


async def _run_again(client: Client, operator: OperatorProcess, name: str, repeats: int) -> float:
    """Return the median duration of runs that change nothing. The operator is warm by then."""
    lines = await operator.await_lines(1, "Run ended", name=name)
    done = len(lines)
    for number in range(repeats):
        body = {"metadata": {"annotations": {RUN_REQUESTED: f"{number}"}}}
        await client.request("PATCH", f"{_PATH}/{name}", body=body, content_type=PatchType.MERGE.value)
        lines = await operator.await_lines(done + number + 1, "Run ended", name=name)
    return statistics.median(float(line["seconds"]) for line in lines[-repeats:])


async def _plan_again(client: Client, project: Project, name: str, repeats: int) -> float:
    """Return the median duration of plans without changes in one process, once that is warm."""
    os.chdir(project.folder)
    settings = _settings(project)
    loaded = watches.load(
        Path("watches.yaml"), environ={}, cwd=Path.cwd(), roles_path="", collections_path="", features=FEATURE_FIELDS
    )
    (target,) = await Selector(client, loaded.watches, ()).find(ResourceSelection("Memcached", name, _NAMESPACE))
    with tempfile.TemporaryDirectory() as folder:
        own = replace(settings, runner_dir=Path(folder))
        async with PlanRuntime.open(client, own) as bed:
            planner = Planner(own, bed, Progress())
            for _ in range(2):
                await _planned(planner, target)
                await bed.warm.settle()
            return statistics.median([await _planned(planner, target) for _ in range(repeats)])


async def _planned(planner: Planner, target: Target) -> float:
    began = time.perf_counter()
    found = await planner.one(target)
    if found.state != "complete" or found.changes:
        raise RuntimeError(f"the plan is not empty: {found}")
    return time.perf_counter() - began


def _settings(project: Project) -> Settings:
    settings, _ = sources.load(Namespace(kubeconfig=[str(project.kubeconfig)]), {})
    return settings


async def _drift(project: Project, size: Size, idle: float) -> list[Result]:
    """Check every resource once. None has drift. `idle` is the CPU time of the idle operator in a second."""
    file = project.folder / "watches.yaml"
    text = file.read_text(encoding="utf-8")
    (watch,) = yaml.safe_load(text)
    period = max(size.resources * _CHECK_EACH, _CHECK_LEAST)
    file.write_text(yaml.safe_dump([{**watch, "drift": {"period": f"{period:.0f}s"}}]), encoding="utf-8")
    tell(f"drift checks of {size.resources} resources")
    async with running(project, _NAMESPACE) as operator:
        await operator.await_ready()
        for number in range(size.resources):
            await operator.await_line("Run ended", name=f"m{number}", outcome="succeeded")
        checks = await _await_checks(operator, size.resources, period)  # the first ones start a fork server
        seconds, began = cpu_seconds_of_tree(operator.pid), time.monotonic()
        done = await _await_checks(operator, checks + size.resources, period)
        seconds = cpu_seconds_of_tree(operator.pid) - seconds - idle * (time.monotonic() - began)
        seconds /= done - checks
    file.write_text(text, encoding="utf-8")
    share = 100 * _IDLE * seconds / _HOUR
    return [
        Result(_CASE, "CPU time of a drift check", seconds, "s"),
        Result(_CASE, f"drift checks of {_IDLE} resources in an hour, computed", share, "% of a core", _MOST_SHARE),
    ]


async def _await_checks(operator: OperatorProcess, wanted: float, period: float) -> float:
    """Wait until as many checks have ended; return their number."""
    async with asyncio.timeout(DEADLINE + 3 * period):
        for _ in itertools.count():
            if (done := await _checks(operator)) >= wanted:
                return done
            await asyncio.sleep(period / _LOOKS)
    raise TimeoutError


async def _checks(operator: OperatorProcess) -> float:
    """Return how many drift checks have ended. All must have found nothing."""
    found: dict[str, float] = {}
    for line in (await operator.metrics()).splitlines():
        if line.startswith("ansible_operator_drift_checks_total{"):
            found[line.partition('result="')[2].partition('"')[0]] = float(line.rpartition(" ")[2])
    if any(number for result, number in found.items() if result != "none"):
        raise RuntimeError(f"not all checks found nothing: {found}")
    return found["none"]


def _fleet(project: Project, size: Size) -> Iterator[Result]:
    defaults = project.folder / "roles/memcached/defaults/main.yml"
    text = defaults.read_text(encoding="utf-8")
    edited = text.replace("memcached_memory_mib: 64", "memcached_memory_mib: 65")
    if edited == text:
        raise RuntimeError("the role has no memory to change")
    defaults.write_text(edited, encoding="utf-8")
    tell(f"a plan of {size.resources} resources")
    began = time.perf_counter()
    done = subprocess.run(
        [*project.program, "plan", "--all", "-n", _NAMESPACE, "--output=json", f"--kubeconfig={project.kubeconfig}"],
        cwd=project.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode != _CHANGED:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    (group,) = json.loads(done.stdout)["groups"]
    if group["count"] != size.resources:
        raise RuntimeError(f"{group['count']} of {size.resources} resources are in the group")
    yield Result(_CASE, f"plan of {size.resources} resources", seconds, "s")
    yield Result(_CASE, "planned resources", size.resources / seconds, "resources/s", _A_SECOND, "higher")


if __name__ == "__main__":
    started = time.monotonic()
    main()
    tell(f"took {time.monotonic() - started:.0f} s")
