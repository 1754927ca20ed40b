"""Finished runs in the run folders: those of earlier operators, and those that the journal has removed.

Reads only finished runs, whose files are masked. Blocking I/O of bounded size: call it in a thread.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from runner.base.config import paths
from runner.core.engine import run_dir
from runner.core.engine.run_folders import Kept
from runner.features.ui import run_details
from runner.features.ui.journal import JournalEntry
from runner.features.ui.run_details import RunDetails
from runner.features.ui.timeline import BAD, Timeline
from runner.values.objects import GVK, ObjectKey

_IDENT = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6})Z-[0-9a-f]{6}")
_OUTCOMES = {"successful": "succeeded", "timeout": "timed out"}


def runs(root: Path, gvk: GVK, key: ObjectKey) -> list[JournalEntry]:
    """Return the finished runs of an object, newest first, without their tasks."""
    if any("/" in part or part in {".", ".."} for part in key):
        return []  # not a valid object: path traversal
    run_folder = Kept(paths.run_dir(root, gvk, key), gvk, key)
    # The files of an active run are not masked.
    going_on = run_dir.going_on(run_folder.folder)
    records = []
    for ident in reversed(run_folder.runs()):
        began = _began(ident)
        if began is not None and (going_on is None or ident != going_on.ident):
            status = run_folder.status(ident)
            run = JournalEntry(ident, gvk, key, "", "", (), 0.0, began, Timeline(str), _OUTCOMES.get(status, status))
            run.ended = _modified(run_folder.output(ident).with_name("status"))
            records.append(run)
    return records


def run(root: Path, gvk: GVK, key: ObjectKey, ident: str) -> JournalEntry | None:
    """Return one run with its tasks."""
    record = next((finished for finished in runs(root, gvk, key) if finished.ident == ident), None)
    if record is None:
        return None
    for event in Kept(paths.run_dir(root, gvk, key), gvk, key).events(ident):
        record.timeline.add(event)
    record.timeline.end(record.ended or record.began, None, whole=record.outcome in {"succeeded", "failed"})
    bad = [task for task in record.timeline.tasks if task.state in BAD]
    if bad and record.outcome != "succeeded":
        # The last failed task ended the run; failures before it were rescued.
        record.message, record.task, record.place = bad[-1].message, bad[-1].name, bad[-1].path
    return record


def details(root: Path, gvk: GVK, key: ObjectKey, ident: str) -> RunDetails | None:
    """Return the output, objects and diffs of one run; None if it is active or its folder is gone."""
    if all(finished.ident != ident for finished in runs(root, gvk, key)):
        return None
    run_folder = Kept(paths.run_dir(root, gvk, key), gvk, key)
    return run_details.read(run_folder.output(ident), run_folder.events(ident), (gvk, key))


def _began(ident: str) -> float | None:
    match = _IDENT.fullmatch(ident)
    return datetime.strptime(match[1], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC).timestamp() if match else None


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None
