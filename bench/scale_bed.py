"""What every part of the benchmark of scale needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench import process_stats
from bench.operator_process import OperatorProcess, Project
from runner.core.kube.client import Client
from runner.sdk.devcluster import DevCluster
from runner.sdk.devcluster.layout import COMPONENTS

CASE = "scale"
PRESENT, BURST, FAILING, REST, NONE, FLAT, SKIP, SMALL, BEHIND, ROLLOUT, DISTANT = NAMESPACES = tuple(
    f"bench-{name}"
    for name in (
        "present",
        "burst",
        "failing",
        "rest",
        "nothing",
        "flat",
        "skip",
        "small",
        "behind",
        "rollout",
        "distant",
    )
)
WARM = "--engine=auto"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    present: int
    burst: int
    objects: int
    long_runs: int
    repeats: int
    failing_seconds: float
    small_bursts: tuple[int, ...]
    behind: int
    rollouts: int
    parts: frozenset[str]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Size:
        """Read it from the environment."""
        return cls(
            present=int(environ.get("BENCH_PRESENT", "500")),
            burst=int(environ.get("BENCH_BURST", "200")),
            objects=int(environ.get("BENCH_OBJECTS", "10000")),
            long_runs=int(environ.get("BENCH_LONG_RUNS", "500")),
            repeats=int(environ.get("BENCH_REPEATS", "5")),
            failing_seconds=float(environ.get("BENCH_FAILING_SECONDS", "30")),
            small_bursts=tuple(int(count) for count in environ.get("BENCH_SMALL_BURSTS", "20,150").split(",")),
            behind=int(environ.get("BENCH_BEHIND", "40")),
            rollouts=int(environ.get("BENCH_ROLLOUTS", "200")),
            parts=frozenset(
                environ.get("BENCH_PARTS", "newcomer,small,behind,burst,failing,rest,skip,flat,rollouts,distant").split(
                    ","
                )
            ),
        )


@dataclass(frozen=True, slots=True)
class Bed:
    """Where it is measured."""

    size: Size
    client: Client
    folder: Path
    cluster: DevCluster

    def project(self, name: str, tasks: list[dict[str, Any]], **options: Any) -> Project:
        """Write a project with one role."""
        return Project.make(self.folder / name, self.cluster.kubeconfig, tasks, **options)

    def control_plane_cpu(self) -> float:
        """Seconds that the control plane has computed so far."""
        pids = filter(None, map(self.cluster.pid, COMPONENTS))
        return sum(map(process_stats.cpu_seconds_of_tree, pids))


def trivial(message: str = "hello") -> list[dict[str, Any]]:
    """The tasks of a role that does next to nothing."""
    return [{"name": "Say hello", "ansible.builtin.debug": {"msg": message}}]


async def metric(operator: OperatorProcess, name: str, **labels: str) -> float:
    """Return the sum of a metric's series with these labels."""
    families = text_string_to_metric_families(await operator.metrics())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def succeeded(obj: Mapping[str, Any], generation: int | None = None) -> bool:
    """Whether an object's status says that its newest spec was run."""
    wanted = generation or obj["metadata"]["generation"]
    return any(
        entry["type"] == "Successful" and entry["status"] == "True" and entry.get("observedGeneration") == wanted
        for entry in (obj.get("status") or {}).get("conditions") or []
    )
