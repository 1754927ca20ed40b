"""Finished runs in the run folders: those of earlier operators, and those that the journal has removed.

Reads only finished runs, whose files are masked. An object of a run is the result of a task that creates, changes or
deletes one, as `kubernetes.core.k8s` returns it. The values of Secrets are never returned. Blocking I/O of bounded
size: call it in a thread.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from runner.base.config import paths
from runner.base.log import visible
from runner.core.engine import run_dir
from runner.core.engine.events import TASK_STARTS
from runner.core.engine.output import Kept, ManagedFieldsFilter
from runner.features.ui.journal import JournalEntry
from runner.features.ui.timeline import BAD, ENDS, ITEM_ENDS, Timeline
from runner.values.errors import shortened
from runner.values.objects import GVK, LAST_APPLIED, ObjectKey

_IDENT = re.compile(r"([0-9]{8}T[0-9]{6}\.[0-9]{6})Z-[0-9a-f]{6}")
_OUTCOMES = {"successful": "succeeded", "timeout": "timed out"}
MOST_OUTPUT = 256 * 1024
"""Maximum size of the output in bytes; its end is shown."""
_MOST_OBJECTS = 100
_MOST_DIFFS = 100
_LONGEST = 20_000
"""Maximum length of an object's YAML and of a diff."""
_MOST_VALUES = _LONGEST // 4
"""More values are longer than that: each has a line. To write an object of a megabyte takes many seconds."""
_HIDDEN = "(hidden)"
_NOT_SHOWN = frozenset({"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"})
_CHANGES = {"create": "created", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class RunObject:
    """An object that a task of the run created, changed, deleted or left unchanged."""

    task: int
    """Number of the task in the run, counted from 1."""
    api_version: str
    kind: str
    namespace: str
    name: str
    change: str
    yaml: str


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Difference that a changed task reported."""

    task: int
    text: str


@dataclass(slots=True)
class RunDetails:
    """Details of one run."""

    output: str | None = None
    """None: the run folder contains none."""
    output_is_cut: bool = False
    objects: list[RunObject] = field(default_factory=list)
    diffs: list[RunDiff] = field(default_factory=list)


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
    shown = RunDetails(*_read_output(run_folder.output(ident)))
    of, task = (gvk.api_version, gvk.kind, *key), 0
    for event in run_folder.events(ident):
        kind, data = str(event.get("event", "")), event.get("event_data")
        result = data.get("res") if isinstance(data, dict) else None
        task += kind in TASK_STARTS
        if (kind in ENDS or kind in ITEM_ENDS) and isinstance(result, dict) and "results" not in result:
            others = (
                one for one in _objects(task, result) if (one.api_version, one.kind, one.namespace, one.name) != of
            )
            shown.objects += islice(others, _MOST_OBJECTS - len(shown.objects))
            shown.diffs += islice(_diffs(task, result), _MOST_DIFFS - len(shown.diffs))
    return shown


def _began(ident: str) -> float | None:
    match = _IDENT.fullmatch(ident)
    return datetime.strptime(match[1], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC).timestamp() if match else None


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _read_output(path: Path) -> tuple[str | None, bool]:
    """Return the end of the output, and whether its beginning is missing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - MOST_OUTPUT, 0))
            data = file.read(MOST_OUTPUT)
    except OSError:
        return None, False
    text = codecs.decode(data, "utf-8", "backslashreplace")
    if is_cut := size > MOST_OUTPUT:
        text = text.partition("\n")[2]
    lines = ManagedFieldsFilter()
    return visible(lines.feed(text) + lines.end()), is_cut


def _objects(task: int, result: Mapping[str, Any]) -> Iterator[RunObject]:
    obj = result.get("result")
    if not isinstance(obj, dict):
        return
    several = obj.get("results")
    if isinstance(several, list):  # a definition with several objects
        for item in several:
            if isinstance(item, dict):
                yield from _objects(task, item)
        return
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(obj.get("kind"), str) or "name" not in metadata:
        return
    change = _CHANGES.get(str(result.get("method")), "changed") if result.get("changed") is True else "unchanged"
    names = str(obj.get("apiVersion", "")), obj["kind"], str(metadata.get("namespace") or ""), str(metadata["name"])
    yield RunObject(task, *names, change, shortened(_dump(_shown(obj)), _LONGEST))


def _shown(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the server's bookkeeping, and without the values of a Secret."""
    shown = {**obj}
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name not in _NOT_SHOWN}
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    shown["metadata"] = metadata
    if obj.get("kind") == "Secret":
        for name in ("data", "stringData"):
            if isinstance(values := obj.get(name), dict):
                shown[name] = dict.fromkeys(values, _HIDDEN)
    return shown


def _diffs(task: int, result: Mapping[str, Any]) -> Iterator[RunDiff]:
    reported = result.get("diff")
    obj = result.get("result")
    is_secret = isinstance(obj, dict) and obj.get("kind") == "Secret"
    for diff in reported if isinstance(reported, list) else [reported]:
        if not isinstance(diff, dict):
            continue
        if is_secret:
            text = "The differences of a Secret are not shown."
        elif isinstance(diff.get("prepared"), str):
            text = diff["prepared"]
        else:
            before, after = _lines(diff.get("before")), _lines(diff.get("after"))
            text = "\n".join(difflib.unified_diff(before, after, "before", "after", lineterm=""))
        if text.strip():
            yield RunDiff(task, shortened(visible(text), _LONGEST))


def _lines(side: object) -> list[str]:
    if side is None or side == "":
        return []
    if isinstance(side, dict) and isinstance(side.get("metadata"), dict):
        side = _shown(side)
    text = side if isinstance(side, str) else _dump(side)
    return text[:_LONGEST].splitlines()


def _dump(value: object) -> str:
    part = _beginning(value, iter(range(_MOST_VALUES)))
    return yaml.safe_dump(part, sort_keys=False, allow_unicode=True, width=120)


def _beginning(value: object, left: Iterator[int]) -> object:
    """Return a value without the end of long texts, and without those in it for which none of `left` is left."""
    if isinstance(value, dict):
        return {name: _beginning(item, left) for name, item in value.items() if next(left, None) is not None}
    if isinstance(value, list):
        return [_beginning(item, left) for item in value if next(left, None) is not None]
    return value[:_LONGEST] if isinstance(value, str) else value
