"""What fork servers need on disk goes with them, or with the next operator."""

from __future__ import annotations

import os
from pathlib import Path

from runner.agent import process_tree
from runner.engine.warm.server import scratch


def test_folders_of_a_killed_operator_are_removed_and_those_of_a_live_one_are_not(
    tmp_path: Path,
) -> None:
    ours = scratch.make(tmp_path)
    own = process_tree.read(os.getpid())
    assert own is not None
    of_the_dead = tmp_path / f".warm-{own.pid}-{own.start - 1}-abc"
    (of_the_dead / "TMPDIR").mkdir(parents=True)
    scratch.remove_abandoned(tmp_path, process_tree.table())
    assert list(tmp_path.iterdir()) == [ours]
