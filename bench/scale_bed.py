"""What several parts of the benchmark of scale need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.operator_process import OperatorProcess
from bench.results import size

CASE = "scale"
REST, NONE, SKIP, SMALL, BEHIND, ROLLOUT, STEPS, DISTANT = NAMESPACES = tuple(
    f"bench-{name}" for name in ("rest", "nothing", "skip", "small", "behind", "rollout", "steps", "distant")
)
OBJECTS, REPEATS = size("OBJECTS", 10_000), size("REPEATS", 5)
WARM = "--engine=auto"


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
