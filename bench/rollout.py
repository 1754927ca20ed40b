"""A changed role for many objects, step by step and at once. `python -m bench.rollout`.

Time from the start of an operator with a changed role until the role has run for all objects: with `rollout` and steps
without a pause, and without it. `BENCH_ROLLOUT_OBJECTS` makes it smaller, `BENCH_REPEATS` repeats both in turn.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench import objects
from bench.operator_process import DEADLINE, Project, running
from bench.results import Result, show, tell
from bench.scale_bed import ROLLOUT, WARM, succeeded, trivial
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from tests.kit.wait import until

_STEPS = {"steps": [1, 5, "25%", "100%"]}


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(cluster, Path(folder)))


async def _measure(cluster: devcluster.DevCluster, folder: Path) -> None:
    count, repeats = int(os.environ.get("BENCH_ROLLOUT_OBJECTS", "200")), int(os.environ.get("BENCH_REPEATS", "3"))
    async with Client(await auth.load(str(cluster.kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        await objects.install(client, (ROLLOUT,))
        await objects.concurrently(
            range(count),
            lambda number: client.request("POST", objects.path(ROLLOUT), body=objects.body(f"o-{number:04}")),
        )
        found: dict[bool, list[float]] = {False: [], True: []}
        # The first pair creates the records; it is not measured.
        for repeat in range(repeats + 1):
            for with_steps in (False, True):
                options = {"rollout": _STEPS} if with_steps else {}
                project = Project.make(
                    folder / f"{repeat}-{with_steps}", cluster.kubeconfig, trivial(f"version {repeat}"), **options
                )
                seconds = await _upgrade(client, project, count)
                tell(f"{'with' if with_steps else 'without'} steps: {seconds:.1f} s")
                if repeat:
                    found[with_steps].append(seconds)
    plain, stepwise = statistics.median(found[False]), statistics.median(found[True])
    show(Result("rollout", f"{count} objects run a changed role at once", plain, "s"))
    show(
        Result(
            "rollout", f"{count} objects run a changed role with steps, against at once", stepwise / plain, "ratio", 1.1
        )
    )


async def _upgrade(client: Client, project: Project, count: int) -> float:
    began = time.perf_counter()
    async with running(project, ROLLOUT, WARM) as operator:

        async def is_done() -> bool:
            await asyncio.sleep(0.1)
            return len({line["name"] for line in operator.lines("Run ended")}) >= count

        await until(is_done, f"runs of {count} objects", DEADLINE)
        seconds = time.perf_counter() - began
        await until(lambda: _all_succeeded(client, count), f"{count} objects to succeed", DEADLINE)
    return seconds


async def _all_succeeded(client: Client, count: int) -> bool:
    return sum(map(succeeded, (await client.request("GET", objects.path(ROLLOUT)))["items"])) >= count


if __name__ == "__main__":
    main()
