"""Artifacts of runs: one folder per run below `artifacts/`, and the link `artifacts/latest`.

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
    """Return a new name of a run. Names sort by time (UTC, microseconds) and are unique within a microsecond."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"


def point_latest(artifacts: Path, ident: str) -> None:
    """Replace the link `latest` atomically with a link to a run's folder."""
    fresh = artifacts / f".{LATEST}-{secrets.token_hex(4)}"
    fresh.symlink_to(ident)
    fresh.replace(artifacts / LATEST)


def latest(artifacts: Path) -> str:
    """Return the name of the newest run; empty if there is none."""
    with contextlib.suppress(OSError):
        return (artifacts / LATEST).readlink().name
    return ""


def rotate(artifacts: Path, keep: int) -> None:
    """Keep the newest `keep` folders, `KEEP_ALL` or `KEEP_NONE`. Remove `latest` if its target is removed."""
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


def discard_unfinished(artifacts: Path) -> None:
    """Remove the artifacts of a run whose operator died: values that became known later are not masked in them."""
    ident = latest(artifacts)
    if ident and not (artifacts / ident / "status").exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(artifacts / ident)
        _mend_latest(artifacts)


def _mend_latest(artifacts: Path) -> None:
    latest = artifacts / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def last_ended(run_dir: Path) -> str:
    """Return the name of the newest run if it has ended, so that its files are masked; otherwise an empty string."""
    ident = latest(run_dir / "artifacts")
    return ident if ident and (run_dir / "artifacts" / ident / "status").is_file() else ""


def move(run_dir: Path, ident: str, target: Path) -> None:
    """Move a run to another run folder, which does not exist. Raises OSError."""
    for folder in (*reversed(target.parents), target, target / "artifacts", target / "env"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (target / "env" / "envvars").touch(mode=0o600)  # by which folders of runs are found
    (run_dir / "artifacts" / ident).rename(target / "artifacts" / ident)


def remove(run_dir: Path) -> None:
    """Remove the run folder of a deleted object. Also remove its namespace's folder if that is empty."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(run_dir)
    with contextlib.suppress(OSError):  # other objects still have folders, or another removal was faster
        run_dir.parent.rmdir()
