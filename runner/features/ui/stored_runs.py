"""Finished runs in the run folders: those of earlier operators, and those that the journal has removed.

Reads only finished runs, whose files are masked. Blocking I/O of bounded size: call it in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson

from runner.base.config import paths
from runner.core.engine import run_dir
from runner.core.engine.job import Event
from runner.core.engine.output import STDOUT
from runner.core.engine.run_folders import Kept
from runner.features.ui import run_details
from runner.features.ui.journal import JournalEntry
from runner.features.ui.run_details import RunDetails
from runner.features.ui.timeline import BAD, Timeline
from runner.values.objects import GVK, ObjectKey

_IDENT = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6})Z-[0-9a-f]{6}")
_MOST_EVENTS = 5000
_LONGEST = 1 << 20
"""Maximum size of an event's file in bytes."""
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
    for event in _events(_artifacts(root, gvk, key, ident)):
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
    folder = _artifacts(root, gvk, key, ident)
    return run_details.read(folder / STDOUT, _events(folder), (gvk, key))


def _artifacts(root: Path, gvk: GVK, key: ObjectKey, ident: str) -> Path:
    return paths.run_dir(root, gvk, key) / "artifacts" / ident


def _events(artifacts: Path) -> Iterator[Event]:
    """Yield the events in order. Files are named `<counter>-<uuid>.json`."""
    folder = artifacts / "job_events"
    try:
        names = [file.name for file in folder.iterdir() if file.name.endswith(".json")]
    except OSError:
        return
    numbered = sorted((int(name.split("-")[0]), name) for name in names if name.split("-")[0].isdecimal())
    for _, name in numbered[:_MOST_EVENTS]:
        file = folder / name
        try:
            event = orjson.loads(file.read_bytes()) if file.stat().st_size <= _LONGEST else None
        except (OSError, ValueError):
            continue  # removed meanwhile, or incomplete
        if isinstance(event, dict):
            yield event


def _began(ident: str) -> float | None:
    match = _IDENT.fullmatch(ident)
    return datetime.strptime(match[1], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC).timestamp() if match else None


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None
