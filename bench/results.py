"""The figures of a benchmark and how they are shown."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Result:
    """One figure. `goal` is None for one that is there for comparison only."""

    case: str
    metric: str
    value: float
    unit: str
    goal: float | None = None
    better: Literal["lower", "higher"] = "lower"


def show(result: Result) -> None:
    """Print a figure as a line of JSON, at once: a benchmark takes minutes."""
    print(json.dumps({**asdict(result), "value": round(result.value, 3)}), flush=True)


def tell(text: str) -> None:
    """Say what goes on."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that `percent` of 100 do not exceed, interpolated between neighbours."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
