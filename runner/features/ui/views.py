"""Views of the status page as JSON values, in pages.

A custom resource has its fields without secret values, a run only the content of the journal. The details of a
finished run are its masked output and the objects that its tasks returned. Kinds are named `Kind.version.group`. Times
are seconds since the epoch, or RFC 3339 in values from the API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from runner import __version__
from runner.base.config import paths
from runner.base.page import PageSections, kind_id, names
from runner.core.dependents.kind import Owned
from runner.core.engine.job import Outcome
from runner.core.engine.output import Kept, logs_command, node_command, pod_log_command
from runner.core.queue.reasons import QueueEntry
from runner.core.reconcile.controller import Controller
from runner.core.watches.watch import content_name
from runner.features.ui import stored_runs
from runner.features.ui.journal import FailureGroup, Journal, JournalEntry
from runner.features.ui.objects import DisplayState, ObjectRow, ObjectStates, display_status, fields_of
from runner.features.ui.stored_runs import RunDetails
from runner.values.errors import shortened
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, conditions_of, metadata

JSON: TypeAlias = dict[str, Any]

PAGE = 50
"""Rows per page."""
_MOST_RUNS = 50
_SHORT, _LONG = 300, 4000
"""Maximum length of a message in a list and in detail views."""
_ORDER = {"running": 0, "waiting": 1, "delayed": 2}
_SETTLING = 60.0
"""Seconds between two searches for deleted objects."""
_MOST_LINES = 2
"""Lines of a message in a list: reason and location."""
_MOST_DETAILS = 10
_MOST_GROUPS = 20
_MOST_DEPENDENTS = 100
_MOST_NAMES = 5
"""Objects of a group of failures."""
_OF_RUN = (
    *("ident", "content", "reason", "waited", "began", "ended", "outcome", "task", "place"),
    *("calls", "call_seconds", "cache_hits", "pod"),
)
"""Fields of a run that the page shows as they are."""
_TROUBLE = frozenset({DisplayState.FAILING.value, DisplayState.STALLED.value})


class PageNotFoundError(LookupError):
    """The requested kind, object or run does not exist."""


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """The operator whose page it is."""

    name: str
    """Name of its leader election, its namespace, or its project."""
    cluster: str
    """URL of the API server."""
    namespaces: Sequence[str]
    """Empty: all."""
    runner_dir: Path
    started: float


class Query(NamedTuple):
    """Parameters of a view. Empty ones match all."""

    kind: str = ""
    key: ObjectKey = ObjectKey("", "")
    ident: str = ""
    """Of a run."""
    state: str = ""
    """Of an object."""
    result: str = ""
    """Of a run, or `unresolved`: failed runs of objects that did not succeed since."""
    search: str = ""
    """Part of `namespace/name`; case is ignored."""
    page: int = 1
    """Numbers after the last page mean the last."""


class Views:
    """Views of the operator's state."""

    def __init__(
        self,
        operator: OperatorInfo,
        kinds: Sequence[Controller],
        journal: Journal,
        sections: Sequence[PageSections] = (),
        dependents: Callable[[ObjectRef], Sequence[Owned]] = lambda _owner: (),
    ) -> None:
        """`sections` are those of features, in the order in which the page shows them."""
        self._dependents = dependents
        self._operator = operator
        self._kinds = {kind_id(kind.watch.gvk): kind for kind in kinds}
        self._journal = journal
        self._sections = sections
        self._states = ObjectStates(list(kinds))
        self._reading = asyncio.Semaphore(1)
        """Only one thread reads run folders."""

    async def follow(self) -> None:
        """Forget deleted objects until canceled, also while no page is open."""
        while True:
            await asyncio.sleep(_SETTLING)
            self._settle()

    def fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes whenever a view can have changed."""
        queues = [
            (
                kind.informer.revision,
                kind.informer.problem(),
                kind.informer.waits(),
                kind.queue.adds,
                len(kind.queue),
                kind.queue.active,
            )
            for kind in self._kinds.values()
        ]
        return (self._journal.revision, *(added.revision() for added in self._sections), *queues)

    async def overview(self) -> JSON:
        """Return kinds, those with failures first, active runs, and failures grouped by cause."""
        self._settle()
        await self._states.refresh()
        kinds = [self._kind(name, kind) for name, kind in self._kinds.items()]
        kinds.sort(key=lambda kind: not (kind["problem"] or kind["waits"] or _TROUBLE & kind["states"].keys()))
        return {
            "version": __version__,
            "operator": self._operator.name,
            "cluster": self._operator.cluster,
            "namespaces": list(self._operator.namespaces),
            "started": self._operator.started,
            "now": time.time(),
            "kinds": kinds,
            "sections": [section for added in self._sections if (section := added.overview()) is not None],
            "live": [self._run(run) for run in self._journal.live.values()],
            "failures": [self._group(group) for group in self._journal.failure_groups()[:_MOST_GROUPS]],
            "finished": len(self._journal.ended),
        }

    async def runs(self, query: Query) -> JSON:
        """Return a page of the matching finished runs, newest first."""
        self._settle()
        gvk = self._find(query.kind).watch.gvk if query.kind else None
        search = query.search.lower()
        matching = [
            run
            for run in reversed(self._journal.ended)
            if gvk in {None, run.gvk} and search in str(run.key).lower() and self._has_result(run, query.result)
        ]
        part, paging = _part(matching, query.page)
        return {**paging, "runs": [self._run(run, resolved=self._journal.is_resolved(run)) for run in part]}

    def _has_result(self, run: JournalEntry, result: str) -> bool:
        if result == "unresolved":
            return run.failed and not self._journal.is_resolved(run)
        return result in {"", run.outcome}

    async def objects(self, query: Query) -> JSON:
        """Return a page of the matching objects."""
        await self._states.refresh()
        gvk = self._find(query.kind).watch.gvk if query.kind else None
        part, paging = _part(self._states.rows(gvk, query.state, query.search), query.page)
        return {**paging, "objects": [shown for row in part if (shown := self._row(row)) is not None]}

    async def queue(self, query: Query) -> JSON:
        """Return a page of the matching requests of the queue: running, waiting and delayed ones."""
        kinds = [self._find(query.kind)] if query.kind else list(self._kinds.values())
        search = query.search.lower()
        standing = [
            (kind_of, at) for kind_of in kinds for at in kind_of.queue.entries() if search in str(at.key).lower()
        ]
        # By stage; the order within a kind stays.
        standing.sort(key=lambda item: _ORDER[item[1].stage])
        part, paging = _part(standing, query.page)
        shown = [
            {**names(kind_of.watch.gvk, at.key), **_queue_entry(at), **self._streak(kind_of.watch.gvk, at.key)}
            for kind_of, at in part
        ]
        return {**paging, "queue": shown}

    async def object(self, query: Query) -> JSON:
        """Return an object with its fields, its dependents, its queue entry and its runs."""
        self._settle()
        of, key = self._find(query.kind), query.key
        obj = of.informer.get(key)
        runs = await self._runs_of(of, key)
        if obj is None and not runs:
            raise PageNotFoundError(f"{of.watch.gvk.kind} {key} not found")
        standing = next((at for at in of.queue.entries() if at.key == key), None)
        return {
            **names(of.watch.gvk, key),
            "content": content_name(of.watch.content),
            "gone": obj is None,
            **(_contents(obj) if obj is not None else {}),
            "fields": fields_of(obj, self._journal.secrets.get((of.watch.gvk, key))) if obj is not None else {},
            "dependents": self._owned(ObjectRef(of.watch.gvk, key)),
            **self._streak(of.watch.gvk, key),
            "standing": _queue_entry(standing) if standing is not None else None,
            "next": _next(of, key),
            "logs": logs_command(of.watch.gvk, key, paths.run_dir(self._operator.runner_dir, of.watch.gvk, key)),
            "sections": self._sections_of(of.watch.gvk, obj) if obj is not None else [],
            "runs": self._with_resolved(runs),
            "now": time.time(),
        }

    def _owned(self, owner: ObjectRef) -> list[JSON]:
        """Return the dependents of an object, the worst first."""
        owned = sorted(self._dependents(owner), key=lambda one: (one.health.state, str(one.gvk), one.key))
        return [
            {
                **names(one.gvk, one.key),
                "api_version": one.gvk.api_version,
                "state": one.health.state.name.lower().replace("_", " "),
                "message": shortened(one.health.message, _SHORT),
            }
            for one in owned[:_MOST_DEPENDENTS]
        ]

    def _sections_of(self, gvk: GVK, obj: Object) -> list[JSON]:
        return [section for added in self._sections if (section := added.of_object(gvk, obj)) is not None]

    async def run(self, query: Query) -> JSON:
        """Return a run with its tasks."""
        self._settle()
        gvk, key, ident = self._find(query.kind).watch.gvk, query.key, query.ident
        record = next((run for run in self._journal.of(gvk, key) if run.ident == ident), None)
        if record is None:
            async with self._reading:
                record = await asyncio.to_thread(stored_runs.run, self._operator.runner_dir, gvk, key, ident)
        if record is None:
            raise PageNotFoundError(f"run {ident} of {gvk.kind} {key} not found")
        folder = paths.run_dir(self._operator.runner_dir, gvk, key)
        tasks = [asdict(task) for task in record.timeline.tasks]
        shown = {"tasks": tasks, "logs": logs_command(gvk, key, folder), "now": time.time()}
        job = await asyncio.to_thread(Kept(folder, gvk, key).job_of_pod, ident)
        commands = (pod_log_command(job) if job else "", node_command(record.pod))
        return {**self._run(record), **shown, "pod_commands": [command for command in commands if command]}

    async def details(self, query: Query) -> JSON:
        """Return the output, objects and diffs of a finished run; `error` if its files are not kept."""
        where = self._operator.runner_dir, self._find(query.kind).watch.gvk, query.key, query.ident
        async with self._reading:
            details = await asyncio.to_thread(stored_runs.details, *where)
        error = "The files of this run are not kept" if details is None else ""
        return {"error": error, **asdict(details or RunDetails())}

    def _with_resolved(self, runs: Sequence[JournalEntry]) -> list[JSON]:
        """Mark the failures in an object's runs, newest first, that a success followed."""
        succeeded, shown = False, []
        for run in runs:
            shown.append(self._run(run, resolved=run.failed and succeeded))
            succeeded = succeeded or run.outcome == Outcome.SUCCEEDED.value
        return shown

    def _group(self, group: FailureGroup) -> JSON:
        latest = group.latest
        return {
            **self._run(latest, resolved=not group.failing),
            "runs": group.runs,
            "objects": [names(latest.gvk, key) for key in islice(group.failing or group.resolved, _MOST_NAMES)],
            "failing_objects": len(group.failing),
            "resolved_objects": len(group.resolved),
            "next": _next(self._kinds[kind_id(latest.gvk)], latest.key),
        }

    async def _runs_of(self, kind: Controller, key: ObjectKey) -> list[JournalEntry]:
        gvk = kind.watch.gvk
        async with self._reading:
            stored = await asyncio.to_thread(stored_runs.runs, self._operator.runner_dir, gvk, key)
        noted = self._journal.of(gvk, key)
        known = {run.ident for run in noted}
        older = [run for run in stored if run.ident not in known]
        return sorted([*noted, *older], key=lambda run: run.ident, reverse=True)[:_MOST_RUNS]

    def _settle(self) -> None:
        kinds = {kind.watch.gvk: kind for kind in self._kinds.values()}
        self._journal.settle(lambda gvk, key: kinds[gvk].queue.is_running(key))
        self._journal.forget(lambda gvk, key: kinds[gvk].informer.summary(key) is not None)

    def _streak(self, gvk: GVK, key: ObjectKey) -> JSON:
        streak = self._journal.streaks.get((gvk, key))
        return {"failed_runs": streak.runs if streak else 0, "failing_since": streak.since if streak else None}

    def _find(self, name: str) -> Controller:
        if name not in self._kinds:
            raise PageNotFoundError(f"unknown kind {name!r}; watched kinds: {', '.join(self._kinds)}")
        return self._kinds[name]

    def _kind(self, name: str, kind: Controller) -> JSON:
        gvk, queue = kind.watch.gvk, kind.queue
        counts = self._states.counts(gvk)
        return {
            "id": name,
            "kind": gvk.kind,
            "api_version": gvk.api_version,
            "content": content_name(kind.watch.content),
            "workers": queue.limit.workers,
            "active": queue.active,
            "waiting": len(queue),
            "objects": sum(counts.values()),
            "states": counts,
            "problem": kind.informer.problem(),
            "waits": kind.informer.waits(),
        }

    def _row(self, row: ObjectRow) -> JSON | None:
        kind = self._states.kinds[row.kind]
        obj = kind.informer.get(row.key)
        if obj is None:
            return None
        status = display_status(obj)
        return {
            **names(kind.watch.gvk, row.key),
            "state": status.state.value,
            "since": status.since,
            "message": "\n".join(shortened(line, _SHORT) for line in status.message.splitlines()[:_MOST_LINES]),
            **self._streak(kind.watch.gvk, row.key),
            "running": kind.queue.is_running(row.key),
            "next": _next(kind, row.key),
        }

    def _run(self, run: JournalEntry, *, resolved: bool = False) -> JSON:
        current = run.timeline.tasks[-1] if run.timeline.tasks else None
        return {
            **names(run.gvk, run.key),
            **{name: getattr(run, name) for name in _OF_RUN},
            "details": list(run.details[:_MOST_DETAILS]),
            "resolved": resolved,
            "message": shortened(run.message, _LONG),
            "current": current.name if current is not None and not run.outcome else "",
            "task_count": run.timeline.count,
        }


def _contents(obj: Object) -> JSON:
    shown, meta = display_status(obj), metadata(obj)
    status = obj.get("status")
    return {
        "state": shown.state.value,
        "since": shown.since,
        "message": shortened(shown.message, _LONG),
        "created": meta.get("creationTimestamp"),
        "generation": meta.get("generation"),
        "observed": status.get("observedGeneration") if isinstance(status, dict) else None,
        "conditions": [
            {
                "type": str(condition.get("type", "")),
                "status": str(condition.get("status", "")),
                "reason": str(condition.get("reason", "")),
                "message": shortened(str(condition.get("message") or ""), _LONG),
                "since": str(condition.get("lastTransitionTime") or ""),
                "observed": condition.get("observedGeneration"),
            }
            for condition in conditions_of(obj)
        ],
    }


def _next(kind: Controller, key: ObjectKey) -> JSON | None:
    """Return the next run of an object: a retry, a periodic run, or one that waits for a worker."""
    entry = kind.queue.next_run(key)
    return _queue_entry(entry) if entry is not None else None


def _queue_entry(at: QueueEntry) -> JSON:
    return {
        "stage": at.stage,
        "reason": at.reason.value,
        "details": list(at.details[:_MOST_DETAILS]),
        "seconds": at.seconds,
    }


def _part(rows: Sequence[Any], page: int) -> tuple[Sequence[Any], JSON]:
    """Return the rows of a page, and the fields that describe the page."""
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(page, 1), pages)
    paging = {"total": len(rows), "page": page, "pages": pages, "now": time.time()}
    return rows[(page - 1) * PAGE : page * PAGE], paging
