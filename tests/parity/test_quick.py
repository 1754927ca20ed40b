"""A part of ansible-core's integration targets that takes two or three minutes; `make test-parity` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = (
    "blocks/main.yml",
    "changed_when",
    "failed_when",
    "lookup_list",
    "loop-until",
    "loops",
    "module_no_log",
    "replace",
    "set_fact/set_fact.yml",
    "stat",
    "tempfile",
    "until",
)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_results_of_some_integration_targets_do_not_depend_on_the_engine() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.parity", *QUICK], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(QUICK)} cases are the same, 0 are not" in found.stdout
