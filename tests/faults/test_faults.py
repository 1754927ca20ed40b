"""The fault suite as a developer starts it, and proof that it notices an operator that breaks a promise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.actions import FAULTS
from tests.kit.places import ROOT
from tests.kit.processes import captured


def _suite(**settings: str) -> subprocess.CompletedProcess[str]:
    return captured(sys.executable, "-m", "tests.faults", cwd=ROOT, env=os.environ | settings)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [len(FAULTS), sum(fault.times for fault in FAULTS)], ids=["each fault once", "all"])
def test_under_faults_every_object_converges_no_run_is_lost_or_repeated_and_nothing_leaks(rounds: int) -> None:
    found = _suite(FAULTS_ROUNDS=str(rounds))
    assert found.returncode == 0, found.stdout + found.stderr
    sys.stdout.write(found.stdout)


@pytest.mark.parametrize(
    ("promise", "faults", "seen"),
    [
        pytest.param("retry", "child of a run: SIGKILL", "in vain for all to converge", marks=pytest.mark.nightly),
        pytest.param("reaping", "child of a run: SIGKILL", "(zombie)", marks=pytest.mark.nightly),
        pytest.param("relisting", "410 after a gap", "in vain for all to converge", marks=pytest.mark.nightly),
    ],
)
def test_a_violated_guarantee_is_detected(promise: str, faults: str, seen: str) -> None:
    # A change may mend what was broken before anybody looked: it is looked at after each round, until it shows.
    rounds = {"FAULTS_ROUNDS": "60", "FAULTS_REST": "1", "FAULTS_PATIENCE": "45"}
    found = _suite(FAULTS_BREAK=promise, FAULTS_ONLY=faults, **rounds)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "all is well" in found.stdout, found.stdout + found.stderr
    assert seen in found.stdout, found.stdout + found.stderr
