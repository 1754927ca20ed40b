"""Folders that fork servers need on disk: each is made for one server, and goes with it.

What an operator that was killed left of them is found by its name, which holds the operator's process and start time.
Blocking I/O.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runner.engine import processes
from runner.engine.processes import Process

_PREFIX = ".warm-"


def make(folder: Path) -> Path:
    """Make one in `folder`. An `OSError` says that it cannot be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = processes.read(os.getpid())
    prefix = f"{_PREFIX}{os.getpid()}-{own.start if own else 0}-"
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        (scratch / "TMPDIR").mkdir(mode=0o700)
    except OSError:
        remove(scratch)
        raise
    return scratch


def remove(scratch: Path) -> None:
    """Remove one."""
    shutil.rmtree(scratch, ignore_errors=True)


def remove_abandoned(folder: Path, running: Mapping[int, Process]) -> None:
    """Remove those of operators that are not running any more."""
    for scratch in folder.glob(f"{_PREFIX}*-*-*"):
        pid, start, _ = scratch.name.removeprefix(_PREFIX).split("-", 2)
        if not processes.operator_lives(f":{pid}:{start}:", running):
            remove(scratch)
