"""Many objects: who waits, what each costs, and what stays. `python -m bench.scale`.

1. With many objects present at start, a new one: how long until it is done, in run times.
2. A burst of new objects of the sample operator with the warm engine, against one object at a time.
3. An object that can only fail: runs in its first half minute, and in its first hour in virtual time.
4. Many objects that were run and rest: memory of each, also with five dependents each, and CPU; Ansible is left out
   (`bench.without_ansible`).
5. The same objects after a restart, with `skipUnchanged`: what it costs to find that none need be run.
6. Many runs, and a day of periodic runs in virtual time: what grows.
7. The corpus' small role: a new object alone, 20 and 150 at once, and one behind 40 that were present at start.
8. Many Deployments that become ready at once: a user's change meanwhile, and the runs and reads that they cause.
9. New objects of the small role, alone and at once, with an API server that is a round trip of 0, 20 and 50 ms away.

`BENCH_PRESENT`, `BENCH_BURST`, `BENCH_OBJECTS`, `BENCH_LONG_RUNS`, `BENCH_SMALL_BURSTS` (numbers, with commas),
`BENCH_BEHIND`, `BENCH_ROLLOUTS` and `BENCH_REPEATS` make it smaller; `BENCH_PARTS` names parts (`newcomer`, `small`,
`behind`, `burst`, `failing`, `rest`, `skip`, `flat`, `rollouts`, `distant`, with commas).
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bench import objects, scale_bursts, scale_rest, scale_rollouts
from bench.results import Result, show, tell
from bench.scale_bed import NAMESPACES, Bed, Size
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster

_PARTS: dict[str, Callable[[Bed], AsyncIterator[Result]]] = {
    "newcomer": scale_bursts.newcomer,
    "small": scale_bursts.small,
    "behind": scale_bursts.behind,
    "burst": scale_bursts.burst,
    "failing": scale_rest.failing,
    "rest": scale_rest.rest,
    "skip": scale_rest.skip,
    "flat": scale_rest.flat,
    "rollouts": scale_rollouts.rollouts,
    "distant": scale_bursts.distant,
}


def main() -> None:
    """Measure on a control plane that goes afterwards."""
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(cluster, Path(folder), Size.of(os.environ)))


async def _measure(cluster: devcluster.DevCluster, folder: Path, size: Size) -> None:
    async with Client(await auth.load(str(cluster.kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        bed = Bed(size, client, folder, cluster)
        await objects.install(client, NAMESPACES)
        for name, part in _PARTS.items():
            if name not in size.parts:
                continue
            tell("{}; load average {:.1f}, {:.1f}, {:.1f}".format(name, *os.getloadavg()))
            async for result in part(bed):
                show(result)


if __name__ == "__main__":
    main()
