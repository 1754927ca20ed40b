"""The benchmarks as a user starts them; how fast anything is, no test says."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.kit.places import ROOT
from tests.kit.processes import captured

SMALL = {
    "BENCH_OBJECTS": "20",
    "BENCH_SAMPLES": "2",
    "BENCH_RUNS": "2",
    "BENCH_REPEATS": "1",
    "BENCH_IDLE_SECONDS": "0.5",
    "BENCH_SECONDS": "0.2",
    "BENCH_WATCHES": "3",
    "BENCH_LIST_MIB": "2",
    "BENCH_SECRETS": "5",
    "BENCH_CASES": "queue",
    "BENCH_EXEC_REPEATS": "1",
    "BENCH_AT_ONCE": "2",
    "BENCH_SMALL_BURSTS": "2,3",
    "BENCH_BEHIND": "8",
    "BENCH_ROLLOUTS": "3",
    "BENCH_ROLLOUT_OBJECTS": "5",
    "BENCH_PRESENT": "12",
    "BENCH_BURST": "3",
    "BENCH_LONG_RUNS": "20",
    "BENCH_FAILING_SECONDS": "1",
    "BENCH_RESOURCES": "3",
    "BENCH_PODS": "3",
    "BENCH_LINES": "20",
    "BENCH_POD_RUNS": "20",
    "BENCH_HOSTS": "1,2",
}


def test_hours_in_virtual_time_end_and_count_every_run() -> None:
    code = (
        "from bench import scale_virtual as hours; first, hour = hours.runs_of_a_hopeless_object();"
        "_, fewest, most = hours.a_day_of_resyncs(10); print(first, hour, fewest.value, most.value)"
    )
    found = captured(sys.executable, "-c", code, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    first, hour, fewest, most = map(int, found.stdout.split())
    assert 1 < first <= 6
    assert first < hour <= 12
    assert 24 <= fewest <= most <= 26


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "goals"),
    [
        ("spine", [1, 5, 20, 40, 40, 50, 50]),
        ("engine", [2, 2, 8, 10, 10, 25, 40, 45, 80]),
        (
            "scale",
            [0, 0.4, 0.4, 0.6, 0.95, 1, 1, 1.1, 2, 2, *[3, 4] * 3, 5, 6, 6, *[8] * 4, 12, 16, 22, 28, 64, 300, 300],
        ),
        ("where", []),
        ("devcluster", [20]),
        ("pods", []),
        ("rollout", [1.1]),
        ("hosts", [0.6, 0.6, 0.6, 0.6, 1, 1]),
        ("plan", [1.3, 3, 5]),
        ("proxy", [0.3, 0.5, 1, 5, 20, 100]),
    ],
)
def test_a_benchmark_prints_only_figures(case: str, goals: list[float]) -> None:
    found = captured(sys.executable, "-m", f"bench.{case}", cwd=ROOT, env=os.environ | SMALL, timeout=900)
    assert found.returncode == 0, found.stderr
    figures = [json.loads(line) for line in found.stdout.splitlines()]
    assert all(figure.keys() == {"case", "metric", "value", "unit", "goal", "better"} for figure in figures)
    assert all(figure["case"] == case and figure["better"] in {"lower", "higher"} for figure in figures)
    assert all(isinstance(figure["value"], float | int) for figure in figures)
    assert sorted(figure["goal"] for figure in figures if figure["goal"] is not None) == sorted(goals)
    assert len({figure["metric"] for figure in figures}) == len(figures)
