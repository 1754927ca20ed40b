"""What a run in a pod costs: `python -m bench.pods`. It needs root, and the packages that `cluster up` names.

1. One small role as a process (`warm`, `exec`), and in a pod and a warm pod on a real node, `BENCH_REPEATS` (5) objects
   one after another: seconds from the creation of an object to the end of its run, medians. Each of them waits for its
   warm pod.
2. `BENCH_PODS` (100) objects at once, whose roles wait until all of them wait: memory and CPU time of the operator
   with all pods connected, seconds until all of them are, and runs a second after that.
3. A role that prints `BENCH_LINES` (2000) results: frames a second, and the operator's CPU time for one.
4. Agents without Ansible, connections of this process: how much the operator's memory grows in `BENCH_POD_RUNS` (1500)
   runs, and how many results a second the operator receives.

The image is that of operators. The operator is a process in the network of the node. All of it runs on this machine,
so that pods and operator share its processors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import objects, pods_agents
from bench.operator_process import OperatorProcess, Project, moment, running
from bench.process_stats import cpu_seconds, proportional
from bench.results import Result, show, tell
from runner.base import log
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from runner.sdk.devcluster import DevCluster, node
from runner.sdk.devcluster.layout import NAMESPACES
from tests.kit.images import BASE, base_archive

_CASE = "pods"
_PORT = 8444
_SETTLE = 3.0
_IDLE_SECONDS = 10.0
_SMALL: list[dict[str, Any]] = [
    {"name": f"Step {number}", "ansible.builtin.debug": {"msg": "done"}} for number in range(3)
]
_WAITING: list[dict[str, Any]] = [
    {
        "name": "Wait for the others",
        "ansible.builtin.uri": {
            "url": "{{ (lookup('file', lookup('env', 'KUBECONFIG')) | from_json).clusters[0].cluster.server }}"
            "/api/v1/namespaces/bench-many/configmaps/gate",
            "headers": {
                "Authorization": "Bearer "
                "{{ (lookup('file', lookup('env', 'KUBECONFIG')) | from_json).users[0].user.token }}"
            },
            "status_code": [200, 404],
        },
        "register": "found",
        "until": "found.status == 200",
        "retries": 3600,
        "delay": 2,
    }
]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repeats: int
    pods: int
    lines: int
    pod_runs: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        found = (environ.get(f"BENCH_{name}", default) for name, default in _DEFAULTS)
        return cls(*map(int, found))


_DEFAULTS = (("REPEATS", "5"), ("PODS", "100"), ("LINES", "2000"), ("POD_RUNS", "1500"))


def main() -> None:
    """Measure in a cluster of its own."""
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    archive = base_archive(sys.stderr)
    with (
        devcluster.start(name="bench", nodes="real", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        cluster.load(archive)
        asyncio.run(_measure(Bed(cluster, Path(folder)), Size.of(os.environ)))


@dataclass(frozen=True, slots=True)
class Bed:
    """The cluster, and a folder for projects."""

    cluster: DevCluster
    folder: Path

    def operator(self, name: str, tasks: list[dict[str, Any]], *flags: str, most: int = 0, warm: int = 0) -> _Running:
        """Start an operator on the namespace `bench-NAME`; with `most`, its runs are in so many pods."""
        in_pods = {"isolation": "pod", "podTemplate": {"image": BASE}, "maxPods": most, "warmPods": warm}
        options = in_pods if most else {}
        project = Project.make(self.folder / name, self.cluster.kubeconfig, tasks, **options)
        enter = ("nsenter", f"--net=/proc/{self.cluster.pid(NAMESPACES)}/ns/net")
        project = replace(project, program=(*enter, *project.program))
        namespace = f"bench-{name}"
        own = (f"--pods-address={node.ADDRESS}:{_PORT}", f"--leader-election-namespace={namespace}")
        return running(project, namespace, *own, *flags)


_Running = AbstractAsyncContextManager[OperatorProcess]


async def _measure(bed: Bed, size: Size) -> None:
    credentials = await auth.load(str(bed.cluster.kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client:
        await objects.install(
            client,
            (
                *(f"bench-{name}" for name in ("warm", "exec", "pod", "warm-pod", "many", "lines")),
                *pods_agents.NAMESPACES,
            ),
        )
        medians = {}
        for name, flags, most, warm in (
            ("warm", "--engine=warm", 0, 0),
            ("exec", "--engine=exec", 0, 0),
            ("pod", "--engine=exec", 1, 0),
            ("warm-pod", "--engine=exec", 1, 1),
        ):
            async with bed.operator(name, _SMALL, flags, most=most, warm=warm) as operator:
                await operator.await_line("Watching")
                medians[name] = await _one_by_one(client, operator, f"bench-{name}", size.repeats, warm=bool(warm))
            show(Result(_CASE, f"creation to the end of the run, {name}, median", medians[name], "s"))
        for name in ("pod", "warm-pod"):
            ratio = medians[name] / medians["exec"]
            show(Result(_CASE, f"run in a {name} in times of a run with exec", ratio, "ratio"))
        await _many(bed, client, size.pods)
        await _lines(bed, client, size.lines)
        without_ansible = pods_agents.Bed(client, Path(bed.cluster.kubeconfig), bed.folder)
        await pods_agents.growth(without_ansible, size.pod_runs)
        await pods_agents.capacity(without_ansible, size.lines)


async def _one_by_one(client: Client, operator: OperatorProcess, namespace: str, repeats: int, *, warm: bool) -> float:
    """Return the median of the seconds; the first object, which warms up, does not count."""
    seconds = []
    for number in range(repeats + 1):
        if warm:
            await operator.await_lines(number + 1, "A warm pod is ready")
            await asyncio.sleep(_SETTLE)
        began = time.time()
        await client.request("POST", objects.path(namespace), body=objects.body(f"object-{number}"))
        ended = await operator.await_line("Run ended", name=f"object-{number}", outcome="succeeded")
        seconds.append(moment(ended) - began)
    return statistics.median(seconds[1:])


async def _many(bed: Bed, client: Client, count: int) -> None:
    async with bed.operator("many", _WAITING, most=count) as operator:
        await operator.await_line("Watching")
        await asyncio.sleep(_SETTLE)
        before = proportional(operator.pid)
        began = time.time()
        tell(f"{count} pods")
        await objects.concurrently(
            range(count),
            lambda number: client.request("POST", objects.path("bench-many"), body=objects.body(f"object-{number}")),
        )
        connected = await operator.await_lines(count, "Agent connected")
        show(Result(_CASE, f"seconds until {count} agents are connected", moment(connected[-1]) - began, "s"))
        await asyncio.sleep(_SETTLE)
        spent, since = cpu_seconds(operator.pid), time.monotonic()
        await asyncio.sleep(_IDLE_SECONDS)
        share = (cpu_seconds(operator.pid) - spent) / (time.monotonic() - since)
        grown = (proportional(operator.pid) - before) / count
        show(Result(_CASE, f"CPU of the operator with {count} pods that poll, of one core", share * 100, "%"))
        show(Result(_CASE, f"memory of the operator for each of {count} pods", grown * 1024, "KiB"))
        opened = time.time()
        await client.request("POST", "/api/v1/namespaces/bench-many/configmaps", body={"metadata": {"name": "gate"}})
        ended = await operator.await_lines(count, "Run ended", outcome="succeeded")
        show(Result(_CASE, "runs that end in a second", count / (moment(ended[-1]) - opened), "1/s", better="higher"))


async def _lines(bed: Bed, client: Client, count: int) -> None:
    tasks = [
        {"name": "Print", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": f"{{{{ range({count}) | list }}}}"}
    ]
    async with bed.operator("lines", tasks, most=1) as operator:
        await operator.await_line("Watching")
        spent = cpu_seconds(operator.pid)
        await client.request("POST", objects.path("bench-lines"), body=objects.body("object"))
        ended = await operator.await_line("Run ended", outcome="succeeded")
        used = cpu_seconds(operator.pid) - spent
        show(Result(_CASE, "results a second", count / float(ended["seconds"]), "1/s", better="higher"))
        show(Result(_CASE, "CPU time of the operator for a result", used / count * 1000, "ms"))


if __name__ == "__main__":
    main()
