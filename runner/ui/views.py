"""What the page is told, as JSON values: a view for each thing to look at, a part of it at a time.

Nothing of an object but its conditions, its generations and its times is ever told, and nothing of a run but what
`journal` keeps. Names of kinds are `Kind.version.group`; times are seconds since the epoch, or as the API writes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from runner import __version__
from runner.objects import GVK, Object, ObjectKey, metadata
from runner.status.conditions import conditions_of
from runner.ui import past
from runner.ui.journal import Journal, Run
from runner.ui.survey import Kind, Row, Survey, Wish, health
from runner.watches.watch import content_name
from runner.workqueue.request import QueueEntry

JSON: TypeAlias = dict[str, Any]

PAGE = 50
"""Rows that are told at once."""
_MOST_RUNS = 50
_SHORT, _LONG = 300, 4000
"""Characters of a message in a list, and by itself."""
_ORDER = {"running": 0, "waiting": 1, "delayed": 2}
_MOST_LINES = 2
"""Of a message in a list: why, and where."""
_MOST_DETAILS = 10


class NotThereError(LookupError):
    """What was asked for is not there; says what."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose page it is."""

    namespaces: Sequence[str]
    """Empty: all."""
    runner_dir: Path
    started: float


def kind_id(gvk: GVK) -> str:
    """Name a kind in an address."""
    return ".".join(filter(None, (gvk.kind, gvk.version, gvk.group)))


class Views:
    """Reads what there is."""

    def __init__(self, place: Place, kinds: Sequence[Kind], journal: Journal) -> None:
        self._place = place
        self._kinds = {kind_id(kind.watch.gvk): kind for kind in kinds}
        self._journal = journal
        self._survey = Survey(list(kinds))
        self._reading = asyncio.Semaphore(1)
        """Of run folders: however many look, one thread does."""

    def fingerprint(self) -> tuple[object, ...]:
        """What differs whenever there may be something new to see."""
        queues = [
            (kind.informer.revision, kind.queue.adds, len(kind.queue), kind.queue.active, kind.problem())
            for kind in self._kinds.values()
        ]
        return (self._journal.revision, *queues)

    async def overview(self) -> JSON:
        """Kinds, the runs that go on, the latest that failed or ended."""
        self._settle()
        await self._survey.refresh()
        return {
            "version": __version__,
            "namespaces": list(self._place.namespaces),
            "started": self._place.started,
            "now": time.time(),
            "kinds": [self._kind(name, kind) for name, kind in self._kinds.items()],
            "live": [self._run(run) for run in self._journal.live.values()],
            "recent": [self._run(run) for run in self._journal.latest(_MOST_RUNS)],
        }

    async def objects(self, kind: str, state: str, search: str, page: int) -> JSON:
        """A page of the objects that are asked for, counted from 1; one behind the last is the last."""
        await self._survey.refresh()
        rows = self._survey.rows(Wish(self._find(kind).watch.gvk if kind else None, state, search))
        part, page, pages = _part(rows, page)
        found = [told for row in part if (told := self._row(row)) is not None]
        return {"total": len(rows), "page": page, "pages": pages, "objects": found, "now": time.time()}

    async def queue(self, kind: str, page: int) -> JSON:
        """A page of the queues: what runs, what waits and why, what comes later."""
        kinds = [self._find(kind)] if kind else list(self._kinds.values())
        standing = [(each, at) for each in kinds for at in each.queue.entries()]
        # What people have to wait for comes first; a kind's own order stays.
        standing.sort(key=lambda item: _ORDER[item[1].stage])
        part, page, pages = _part(standing, page)
        told = [
            {**_names(each.watch.gvk, at.key), **_standing(at), **self._streak(each.watch.gvk, at.key)}
            for each, at in part
        ]
        return {"total": len(standing), "page": page, "pages": pages, "queue": told, "now": time.time()}

    async def object(self, kind: str, key: ObjectKey) -> JSON:
        """One object: its conditions, its place in the queue, its runs."""
        self._settle()
        of = self._find(kind)
        obj = of.informer.get(key)
        runs = await self._runs_of(of, key)
        if obj is None and not runs:
            raise NotThereError(f"there is no {of.watch.gvk.kind} {key}")
        standing = next((at for at in of.queue.entries() if at.key == key), None)
        return {
            **_names(of.watch.gvk, key),
            "content": content_name(of.watch.content),
            "gone": obj is None,
            **(_whole(obj) if obj is not None else {}),
            **self._streak(of.watch.gvk, key),
            "standing": _standing(standing) if standing is not None else None,
            "runs": [self._run(run) for run in runs],
            "now": time.time(),
        }

    async def run(self, kind: str, key: ObjectKey, ident: str) -> JSON:
        """One run with its tasks."""
        self._settle()
        gvk = self._find(kind).watch.gvk
        found = next((run for run in self._journal.of(gvk, key) if run.ident == ident), None)
        if found is None:
            async with self._reading:
                found = await asyncio.to_thread(past.run, self._place.runner_dir, gvk, key, ident)
        if found is None:
            raise NotThereError(f"no run {ident} of {gvk.kind} {key} is kept")
        return {**self._run(found), "tasks": _tasks(found), "now": time.time()}

    async def _runs_of(self, kind: Kind, key: ObjectKey) -> list[Run]:
        gvk = kind.watch.gvk
        async with self._reading:
            kept = await asyncio.to_thread(past.runs, self._place.runner_dir, gvk, key)
        noted = self._journal.of(gvk, key)
        known = {run.ident for run in noted}
        older = [run for run in kept if run.ident not in known]
        return sorted([*noted, *older], key=lambda run: run.ident, reverse=True)[:_MOST_RUNS]

    def _settle(self) -> None:
        kinds = {kind.watch.gvk: kind for kind in self._kinds.values()}
        self._journal.settle(lambda gvk, key: kinds[gvk].queue.is_running(key))
        self._journal.forget(lambda gvk, key: kinds[gvk].informer.summary(key) is not None)

    def _streak(self, gvk: GVK, key: ObjectKey) -> JSON:
        found = self._journal.streaks.get((gvk, key))
        return {"failed_runs": found.runs if found else 0, "failing_since": found.since if found else None}

    def _find(self, name: str) -> Kind:
        if name not in self._kinds:
            raise NotThereError(f"no kind {name!r} is watched; there are {', '.join(self._kinds)}")
        return self._kinds[name]

    def _kind(self, name: str, kind: Kind) -> JSON:
        gvk, queue = kind.watch.gvk, kind.queue
        counts = self._survey.counts(gvk)
        return {
            "id": name,
            "kind": gvk.kind,
            "api_version": gvk.api_version,
            "content": content_name(kind.watch.content),
            "workers": kind.workers,
            "active": queue.active,
            "waiting": len(queue),
            "objects": sum(counts.values()),
            "states": counts,
            "problem": kind.problem(),
        }

    def _row(self, row: Row) -> JSON | None:
        kind = self._survey.kinds[row.kind]
        obj = kind.informer.get(row.key)
        if obj is None:
            return None
        found = health(obj)
        return {
            **_names(kind.watch.gvk, row.key),
            "state": found.state.value,
            "since": found.since,
            "message": _cut("\n".join(found.message.splitlines()[:_MOST_LINES]), _SHORT),
            **self._streak(kind.watch.gvk, row.key),
            "running": kind.queue.is_running(row.key),
        }

    def _run(self, run: Run) -> JSON:
        calls, current = run.calls, run.timeline.tasks[-1] if run.timeline.tasks else None
        return {
            **_names(run.gvk, run.key),
            "ident": run.ident,
            "content": run.content,
            "reason": run.reason,
            "details": list(run.details[:_MOST_DETAILS]),
            "waited": run.waited,
            "began": run.began,
            "ended": run.ended,
            "outcome": run.outcome,
            "message": _cut(run.message, _LONG),
            "task": run.task,
            "place": run.place,
            "current": current.name if current is not None and not run.outcome else "",
            "task_count": run.timeline.count,
            "calls": calls.calls if calls is not None else None,
            "call_seconds": calls.seconds if calls is not None else None,
            "cache_hits": calls.hits if calls is not None else None,
            "ways": dict(run.ways),
        }


def _tasks(run: Run) -> list[JSON]:
    return [
        {
            "name": task.name,
            "path": task.path,
            "action": task.action,
            "began": task.began,
            "ended": task.ended,
            "state": task.state,
            "message": task.message,
        }
        for task in run.timeline.tasks
    ]


def _whole(obj: Object) -> JSON:
    found, meta = health(obj), metadata(obj)
    status = obj.get("status")
    return {
        "state": found.state.value,
        "since": found.since,
        "created": meta.get("creationTimestamp"),
        "generation": meta.get("generation"),
        "observed": status.get("observedGeneration") if isinstance(status, dict) else None,
        "conditions": [
            {
                "type": str(each.get("type", "")),
                "status": str(each.get("status", "")),
                "reason": str(each.get("reason", "")),
                "message": _cut(str(each.get("message") or ""), _LONG),
                "since": str(each.get("lastTransitionTime") or ""),
                "observed": each.get("observedGeneration"),
            }
            for each in conditions_of(obj)
        ],
    }


def _standing(at: QueueEntry) -> JSON:
    return {
        "stage": at.stage,
        "reason": at.reason.value,
        "details": list(at.details[:_MOST_DETAILS]),
        "seconds": at.seconds,
    }


def _names(gvk: GVK, key: ObjectKey) -> JSON:
    return {"kind": gvk.kind, "kind_id": kind_id(gvk), "namespace": key.namespace, "name": key.name}


def _part(rows: Sequence[Any], page: int) -> tuple[Sequence[Any], int, int]:
    """Return the rows of a page, which page it is, and how many there are."""
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(page, 1), pages)
    return rows[(page - 1) * PAGE : page * PAGE], page, pages


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
