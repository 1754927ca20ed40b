"""Folders of fork servers: each server has one, which is removed at its end.

The name of a folder contains the operator's pid and start time, so that the next operator finds the folders of one that
was killed. Blocking I/O.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runner.agent.process_tree import Process
from runner.base import log
from runner.core.engine import processes

_PREFIX = ".warm-"
TMPDIR = "TMPDIR"
_log = log.get(__name__)


def make(folder: Path) -> Path:
    """Create a server's folder in `folder`. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = f"{_PREFIX}{os.getpid()}-{processes.start_of(os.getpid())}-"
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        (scratch / TMPDIR).mkdir(mode=0o700)
    except OSError:
        scratch.rmdir()  # needs no descriptor, unlike rmtree
        raise
    return scratch


def remove(scratch: Path) -> None:
    """Remove a server's folder. Raises `OSError` if a part remains."""
    with contextlib.suppress(OSError):  # an empty folder can be removed without a descriptor
        (scratch / TMPDIR).rmdir()
        scratch.rmdir()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)


def remove_abandoned(folder: Path, running: Mapping[int, Process]) -> None:
    """Remove the folders of operators that have ended."""
    for scratch in folder.glob(f"{_PREFIX}*-*-*"):
        pid, start, _ = scratch.name.removeprefix(_PREFIX).split("-", 2)
        if not processes.operator_lives(f":{pid}:{start}:", running):
            try:
                remove(scratch)
            except OSError as error:  # another user can own it, or its server is just ending
                _log.warning("Cannot remove the folder of an earlier fork server; remove it by hand", error=str(error))
