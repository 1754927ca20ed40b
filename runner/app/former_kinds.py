"""Kinds that are no longer in a watches file, so that their run folders can be removed.

The runner folder contains a record for each watches file, with the kinds whose run folders it may contain. Operators of
several projects may share a runner folder: kinds in other records are theirs. Blocking I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from runner import log
from runner.config import atomic_file, paths
from runner.engine import retention
from runner.objects import GVK, ObjectKey
from runner.watches.watch import Watch

_FOLDER = "watched-kinds"
_log = log.get(__name__)


def update(runner_dir: Path, watches_file: Path, watches: Iterable[Watch]) -> list[Path]:
    """Record the watched kinds; return the folders with runs of kinds that no watches file contains any more.

    A failure is logged, and no folder is returned.
    """
    file = str(watches_file.absolute())
    record = runner_dir / _FOLDER / f"{hashlib.blake2b(file.encode(), digest_size=8).hexdigest()}.json"
    current = {str(_folder(runner_dir, watch.gvk).relative_to(runner_dir)) for watch in watches}
    try:
        others = {kind for other in record.parent.glob("*.json") if other != record for kind in _read(other)}
        gone = sorted(kind for kind in _read(record) - current - others if _holds_runs(runner_dir / kind))
        _write(record, file, current | set(gone))
    except OSError as error:
        _log.warning("Cannot record the watched kinds", file=str(record), error=str(error))
        return []
    return [runner_dir / kind for kind in gone]


def _folder(runner_dir: Path, gvk: GVK) -> Path:
    return paths.run_dir(runner_dir, gvk, ObjectKey("", ""))


def _holds_runs(folder: Path) -> bool:
    return next(retention.run_folders(folder), None) is not None


def _read(record: Path) -> set[str]:
    """Return the kinds of a record, without paths that lead out of the runner folder."""
    try:
        kinds = json.loads(record.read_text(encoding="utf-8"))["kinds"]
        return {kind for kind in kinds if ".." not in Path(kind).parts and not Path(kind).is_absolute() and kind}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("The record of watched kinds is invalid; replacing it", file=str(record), error=str(error))
        return set()


def _write(record: Path, file: str, kinds: Iterable[str]) -> None:
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_file.write(record, json.dumps({"watches file": file, "kinds": sorted(kinds)}, indent=1))
