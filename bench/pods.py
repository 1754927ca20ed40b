"""What a run in a pod costs: `python -m bench.pods`. It needs root, and the packages that `cluster up` names.

1. One small role as a process (`warm`, `exec`), and in a pod and a warm pod on a real node, `BENCH_REPEATS` (5) objects
   one after another: seconds from the creation of an object to the end of its run, medians. Each of them waits for its
   warm pod.
2. `BENCH_PODS` (100) objects at once, whose roles wait until all of them wait: memory and CPU time of the operator
   with all pods connected, seconds until all of them are, and runs a second after that.
3. A role that prints `BENCH_LINES` (2000) results: frames a second, and the operator's CPU time for one.

The image is that of operators. The operator is a process in the network of the node. All of it runs on this machine,
so that pods and operator share its processors.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import objects
from bench.bed import Bed, on_cluster
from bench.operator_process import OperatorProcess, moment, running
from bench.process_stats import cpu_seconds, proportional
from bench.results import Result, show, size, tell
from runner.base import log
from runner.core.kube.client import Client
from runner.sdk.devcluster import node
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


_REPEATS, _PODS, _LINES = size("REPEATS", 5), size("PODS", 100), size("LINES", 2000)


def _operator(
    bed: Bed, name: str, tasks: list[dict[str, Any]], *flags: str, most: int = 0, warm: int = 0
) -> AbstractAsyncContextManager[OperatorProcess]:
    """Start an operator on the namespace `bench-NAME`; with `most`, its runs are in so many pods."""
    in_pods = {"isolation": "pod", "podTemplate": {"image": BASE}, "maxPods": most, "warmPods": warm}
    enter = ("nsenter", f"--net=/proc/{bed.cluster.pid(NAMESPACES)}/ns/net")
    project = bed.project(name, tasks, **(in_pods if most else {}))
    project = replace(project, program=(*enter, *project.program))
    namespace = f"bench-{name}"
    own = (f"--pods-address={node.ADDRESS}:{_PORT}", f"--leader-election-namespace={namespace}")
    return running(project, namespace, *own, *flags)


async def _measure(archive: Path, bed: Bed) -> None:
    bed.cluster.load(archive)
    names = ("warm", "exec", "pod", "warm-pod", "many", "lines")
    await objects.install(bed.client, tuple(f"bench-{name}" for name in names))
    medians = {}
    for name, flags, most, warm in (
        ("warm", "--engine=warm", 0, 0),
        ("exec", "--engine=exec", 0, 0),
        ("pod", "--engine=exec", 1, 0),
        ("warm-pod", "--engine=exec", 1, 1),
    ):
        async with _operator(bed, name, _SMALL, flags, most=most, warm=warm) as operator:
            await operator.await_line("Watching")
            medians[name] = await _one_by_one(bed.client, operator, f"bench-{name}", warm=bool(warm))
        show(Result(_CASE, f"creation to the end of the run, {name}, median", medians[name], "s"))
    for name in ("pod", "warm-pod"):
        ratio = medians[name] / medians["exec"]
        show(Result(_CASE, f"run in a {name} in times of a run with exec", ratio, "ratio"))
    await _many(bed)
    await _lines(bed)


async def _one_by_one(client: Client, operator: OperatorProcess, namespace: str, *, warm: bool) -> float:
    """Return the median of the seconds; the first object, which warms up, does not count."""
    seconds = []
    for number in range(_REPEATS + 1):
        if warm:
            await operator.await_lines(number + 1, "A warm pod is ready")
            await asyncio.sleep(_SETTLE)
        began = time.time()
        await client.request("POST", objects.path(namespace), body=objects.body(f"object-{number}"))
        ended = await operator.await_line("Run ended", name=f"object-{number}", outcome="succeeded")
        seconds.append(moment(ended) - began)
    return statistics.median(seconds[1:])


async def _many(bed: Bed) -> None:
    count, client = _PODS, bed.client
    async with _operator(bed, "many", _WAITING, most=count) as operator:
        await operator.await_line("Watching")
        await asyncio.sleep(_SETTLE)
        before = proportional(operator.pid)
        began = time.time()
        tell(f"{count} pods")
        await objects.create_all(client, "bench-many", [f"object-{number}" for number in range(count)])
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


async def _lines(bed: Bed) -> None:
    count = _LINES
    tasks = [
        {"name": "Print", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": f"{{{{ range({count}) | list }}}}"}
    ]
    async with _operator(bed, "lines", tasks, most=1) as operator:
        await operator.await_line("Watching")
        spent = cpu_seconds(operator.pid)
        await bed.client.request("POST", objects.path("bench-lines"), body=objects.body("object"))
        ended = await operator.await_line("Run ended", outcome="succeeded")
        used = cpu_seconds(operator.pid) - spent
        show(Result(_CASE, "results a second", count / float(ended["seconds"]), "1/s", better="higher"))
        show(Result(_CASE, "CPU time of the operator for a result", used / count * 1000, "ms"))


if __name__ == "__main__":
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    on_cluster(partial(_measure, base_archive(sys.stderr)), nodes="real")
