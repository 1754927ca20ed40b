"""The fault suite: `python -m tests.faults`, or `make faults`.

`FAULTS_SEED` (default 1) and `FAULTS_ROUNDS` (default: each fault as often as it is in the deck) decide what happens;
`FAULTS_ONLY` takes only faults whose name holds this text; `FAULTS_BREAK` names a promise that the operator is to break
(`retry`, `reaping`, `relisting`), so that the suite must fail; `FAULTS_PATIENCE` is how many seconds the world gets to
come to rest, and `FAULTS_REST` after how many rounds it must. Exit code 1: something did not hold.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from runner.sdk import devcluster
from runner.sdk.devcluster.layout import KWOK, SCHEDULER
from tests.faults.actions import FAULTS
from tests.faults.suite import BETWEEN_RESTS, Broken, Plan, Suite, say
from tests.faults.world import PATIENCE, world

_DECK = sum(fault.times for fault in FAULTS)


def main() -> int:
    """Run it once."""
    seed, rounds = int(os.environ.get("FAULTS_SEED", "1")), int(os.environ.get("FAULTS_ROUNDS", str(_DECK)))
    only, promise = os.environ.get("FAULTS_ONLY", ""), os.environ.get("FAULTS_BREAK", "")
    say(f"seed {seed}, {rounds} rounds" + (f", broken on purpose: {promise}" if promise else ""))
    began = time.monotonic()
    with devcluster.start(name="faults") as cluster, tempfile.TemporaryDirectory(prefix="faults-") as folder:
        for unused in (SCHEDULER, KWOK):
            cluster.control.order("stop", unused)
        chance = random.Random(seed)
        plan = Plan.of(chance, rounds, only)
        with world(cluster, Path(folder), chance, _command(promise)) as made:
            patience = float(os.environ.get("FAULTS_PATIENCE", PATIENCE))
            suite = Suite(made, plan, patience, int(os.environ.get("FAULTS_REST", str(BETWEEN_RESTS))))
            broken: Broken | None = None
            try:
                suite.run()
            except Broken as error:
                broken = error
                if kept := os.environ.get("FAULTS_KEEP"):
                    shutil.copytree(made.folder, kept, symlinks=True, ignore=shutil.ignore_patterns("disk"))
            finally:
                suite.report()
                say(f"{time.monotonic() - began:.0f} s")
            if broken:  # last, because readers look at the end of a long output
                say(f"\nBROKEN: {broken}")
    return 1 if broken else 0


def _command(promise: str) -> tuple[str, ...]:
    if promise:
        return sys.executable, str(Path(__file__).with_name("broken.py")), promise
    return (str(Path(sys.executable).with_name("ansible-operator")),)


if __name__ == "__main__":
    sys.exit(main())
