"""The benchmarks as a user starts them; how fast anything is, no test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.kit.places import ROOT

SMALL = {
    "BENCH_OBJECTS": "20",
    "BENCH_SAMPLES": "2",
    "BENCH_RUNS": "2",
    "BENCH_REPEATS": "1",
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
    "BENCH_RESOURCES": "3",
    "BENCH_PODS": "3",
    "BENCH_LINES": "20",
    "BENCH_HOSTS": "1,2",
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "goals"),
    [
        ("spine", [5, 20, 50, 50]),
        ("engine", [2, 2, 8, 10, 10, 25, 40, 45, 80]),
        ("scale", [0.4, 0.4, 0.6, 0.95, 1, 1, 1.1, 2, 3, 4, 4, 5, 8, 8, 8, 300, 300]),
        ("pods", []),
        ("hosts", [0.6, 0.6, 0.6, 0.6, 1, 1]),
        ("plan", [1.3, 3, 5]),
        ("proxy", [0.3, 0.5, 1, 5, 20, 100]),
    ],
)
def test_a_benchmark_prints_only_figures(case: str, goals: list[float]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", f"bench.{case}"],
        cwd=ROOT,
        env=os.environ | SMALL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert found.returncode == 0, found.stderr
    figures = [json.loads(line) for line in found.stdout.splitlines()]
    assert all(figure.keys() == {"case", "metric", "value", "unit", "goal", "better"} for figure in figures)
    assert all(figure["case"] == case and figure["better"] in {"lower", "higher"} for figure in figures)
    assert all(isinstance(figure["value"], float | int) for figure in figures)
    assert sorted(figure["goal"] for figure in figures if figure["goal"] is not None) == sorted(goals)
    assert len({figure["metric"] for figure in figures}) == len(figures)
