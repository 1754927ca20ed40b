"""Where benchmarks measure: a control plane that goes afterwards, its client, and a folder for projects."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.operator_process import Project
from bench.results import Result, show, tell
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from runner.sdk.devcluster import DevCluster


@dataclass(frozen=True, slots=True)
class Bed:
    """What every measurement needs."""

    client: Client
    folder: Path
    cluster: DevCluster

    def project(self, name: str, tasks: list[dict[str, Any]], **options: Any) -> Project:
        """Write a project with one role. `options` are further fields of the watch."""
        return Project.make(self.folder / name, self.cluster.kubeconfig, tasks, **options)


def on_cluster(measure: Callable[[Bed], Awaitable[None]], nodes: str = "fake") -> None:
    """Measure on a control plane of its own."""
    with (
        devcluster.start(name="bench", nodes=nodes, progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
    ):
        asyncio.run(_measure(measure, cluster, Path(folder)))


async def _measure(measure: Callable[[Bed], Awaitable[None]], cluster: DevCluster, folder: Path) -> None:
    credentials = await auth.load(str(cluster.kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client:
        await measure(Bed(client, folder, cluster))


async def show_all(what: str, results: AsyncIterator[Result]) -> None:
    """Show the figures of a part of a benchmark, each at once."""
    tell("{}; load average {:.1f}, {:.1f}, {:.1f}".format(what, *os.getloadavg()))
    async for result in results:
        show(result)
