"""What runs leave behind: one folder per run below `artifacts/`, and `artifacts/latest`.

Owns naming, rotation and removal. Blocking I/O: call it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

LATEST = "latest"
KEEP_ALL = 0
KEEP_NONE = -1


def new_ident(now: datetime) -> str:
    """Name a run: sorts by time (UTC, microseconds), unique among runs of the same moment."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"


def point_latest(artifacts: Path, ident: str) -> None:
    """Make `latest` a link to a run's folder, with no moment without one."""
    fresh = artifacts / f".{LATEST}-{secrets.token_hex(4)}"
    fresh.symlink_to(ident)
    fresh.replace(artifacts / LATEST)


def rotate(artifacts: Path, keep: int) -> None:
    """Keep the newest `keep` folders; `KEEP_ALL` and `KEEP_NONE` are what they say. `latest` never dangles."""
    if keep == KEEP_ALL:
        return
    with contextlib.suppress(FileNotFoundError):
        runs = sorted(
            (entry for entry in os.scandir(artifacts) if entry.is_dir(follow_symlinks=False)),
            key=lambda entry: (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name),
        )
        for entry in runs[: len(runs) - max(keep, 0)] if keep < len(runs) else []:
            shutil.rmtree(entry.path)
    _mend_latest(artifacts)


def discard(artifacts: Path, ident: str) -> None:
    """Remove what one run left."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(artifacts / ident)
    _mend_latest(artifacts)


def _mend_latest(artifacts: Path) -> None:
    latest = artifacts / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def remove(run_dir: Path) -> None:
    """Remove everything of an object that is gone, and its namespace's folder when that was the last."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(run_dir)
    with contextlib.suppress(OSError):  # others are still there, or were faster
        run_dir.parent.rmdir()
