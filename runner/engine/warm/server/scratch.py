"""Folders that fork servers need on disk: each is made for one server, and goes with it.

What an operator that was killed left of them is found by its name, which holds the operator's process and start time.
Blocking I/O.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runner.engine import processes
from runner.engine.processes import Process

_PREFIX = ".warm-"
TMPDIR = "TMPDIR"


def make(folder: Path) -> Path:
    """Make one in `folder`. An `OSError` says that it cannot be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = f"{_PREFIX}{os.getpid()}-{processes.start_of(os.getpid())}-"
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        (scratch / TMPDIR).mkdir(mode=0o700)
    except OSError:
        scratch.rmdir()  # takes no descriptor, as removing whole folders does
        raise
    return scratch


def remove(scratch: Path) -> None:
    """Remove one. An `OSError` says that something is left."""
    with contextlib.suppress(OSError):  # as long as there is nothing in it, this works without a descriptor
        (scratch / TMPDIR).rmdir()
        scratch.rmdir()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)


def remove_abandoned(folder: Path, running: Mapping[int, Process]) -> None:
    """Remove those of operators that are not running any more."""
    for scratch in folder.glob(f"{_PREFIX}*-*-*"):
        pid, start, _ = scratch.name.removeprefix(_PREFIX).split("-", 2)
        if not processes.operator_lives(f":{pid}:{start}:", running):
            remove(scratch)
