"""What Prometheus finds wrong of rules, expressions and metrics."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from runner.devcluster.cluster import get_promcheck


def problems_of_rules(file: Path) -> list[str]:
    """What is wrong of a file of alert rules."""
    return _run("rules", str(file))[1]


def problems_of_metrics(text: str) -> list[str]:
    """What is wrong of exposed metrics."""
    return _run("metrics", given=text)[1]


def names_in(expressions: Iterable[str]) -> set[str]:
    """The metrics that expressions are about, each of which must be PromQL."""
    code, lines = _run("names", given="".join(f"{' '.join(each.split())}\n" for each in expressions))
    assert code == 0, lines
    return set(lines)


def _run(*arguments: str, given: str = "") -> tuple[int, list[str]]:
    program = get_promcheck(os.environ, sys.stderr)
    done = subprocess.run([program, *arguments], input=given, text=True, capture_output=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stdout.splitlines()
