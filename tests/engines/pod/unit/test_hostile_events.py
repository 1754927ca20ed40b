"""Lines of a hostile pod: each is an event that every part of the operator can read, or an error of its run."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner.base.events.bodies import ApiEvent
from runner.core.engine import events, redaction
from runner.core.engine.artifact_writer import ArtifactWriter
from runner.core.engine.blocks import BlockWriter, Level
from runner.core.engine.job import Event, Job, RunResult
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile.run_log import Form, ObservedRun, RunEvents, RunLog
from runner.engines.pod.stream import MARK, MalformedLineError, WorkerOutput
from runner.features.plan.tasks import UnplannedTasks
from runner.features.prune.coverage import CoverageRecorder
from runner.features.ui.journal import Journal
from runner.values.objects import ObjectRef

NAMES = (
    *("playbook_on_task_start", "playbook_on_stats", "runner_on_ok", "runner_on_failed", "runner_on_unreachable"),
    *("runner_item_on_failed", "runner_item_on_ok", "runner_on_skipped", "verbose", "error", "playbook_on_play_start"),
)
COUNTS = ("ok", "changed", "failures", "dark", "skipped", "ignored", "rescued", "processed")
TEXTS = ("host", "task", "task_action", "resolved_action", "task_path", "task_uuid", "play_uuid", "role", "play")
SECRET = "hunter2-hunter2"
NUMBER = 7
"""That of the run's events."""


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**64, -(2**70), 10**400, 1.5, math.inf, math.nan, SECRET, "ok", "5s", "9" * 400 + "h"]),
    st.text(max_size=8),
    st.sampled_from(["\ud800", "\x00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01"]),
)
_ANYTHING = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
) | st.sampled_from([900, 5_000]).map(_nested)


def _maybe(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(valid, valid, _ANYTHING)


_RESULTS = st.fixed_dictionaries(
    {},
    optional={
        **{name: _maybe(st.text(max_size=4)) for name in ("msg", "reason", "item", "_ansible_item_label")},
        **{name: _maybe(st.booleans()) for name in ("changed", "done", "terminal")},
        **dict.fromkeys(("results", "censored", "false_condition", "skip_reason"), _ANYTHING),
        "period": _maybe(st.just("5s")),
    },
)
_DATA = st.fixed_dictionaries(
    {},
    optional={
        **{name: _maybe(st.sampled_from(["a", "debug", "requeue_after", "fail_terminal", "meta"])) for name in TEXTS},
        **{name: _maybe(st.dictionaries(st.just("localhost"), st.integers(0, 3))) for name in COUNTS},
        "ignore_errors": _ANYTHING,
        "is_conditional": _ANYTHING,
        "res": _maybe(_RESULTS),
    },
)
_EVENTS = st.fixed_dictionaries(
    {
        "event": _maybe(st.sampled_from(NAMES)),
        "uuid": _maybe(st.just("0-1")),
        MARK: st.sampled_from([NUMBER, NUMBER, NUMBER, None, "7"]),
    },
    optional={
        "counter": _maybe(st.integers(1, 9)),
        "stdout": _maybe(st.sampled_from(["fatal: [localhost]", f"[ERROR]: Task failed: {SECRET}\nOrigin: x", "{"])),
        "created": _maybe(st.just("2026-01-01T00:00:00")),
        "event_data": _maybe(_DATA),
        "status": _ANYTHING,
        "zipfile": _ANYTHING,
    },
)


class _Sinks:
    """All parts of the operator that read events of a run."""

    def __init__(self, job: Job) -> None:
        request = ReconcileRequest(job.key, reasons.CREATED, (), 0, 0, 0.0)
        self._recorded: list[ApiEvent] = []
        stats = RunStats()
        logs: list[ObservedRun] = [
            RunLog(level, BlockWriter(io.StringIO()), whole_output=True, form=form).start(job, request)
            for form in get_args(Form)
            for level in get_args(Level)
        ]
        journal = Journal(lambda: 0.0).start(job, request)
        run_events = RunEvents(self, ObjectRef(job.gvk, job.key, "uid"), job, finalizing=False)
        self._coverage = CoverageRecorder()
        self._records, self._run_events, self._stats = [*logs, journal], run_events, stats
        self._readers: list[Callable[[Event], None]] = [each.event for each in self._records]
        self._readers += [run_events.event, self._coverage.event, UnplannedTasks().event]

    def record(self, what: ApiEvent) -> None:
        self._recorded.append(what)

    def event(self, event: Event) -> None:
        for read in self._readers:
            read(event)

    def end(self, result: RunResult) -> None:
        self._coverage.result()
        self._run_events.ended(result)
        for record in self._records:
            record.end(result, self._stats)


async def _run(job: Job, lines: list[bytes]) -> str:
    """Read the lines as the engine does; return why one is malformed."""
    output, progress, sinks = WorkerOutput(NUMBER), events.Progress(), _Sinks(job)
    artifacts = ArtifactWriter(job, {})
    await artifacts.begin()
    found: list[Event] = []
    malformed = ""
    for line in lines:
        try:
            event = output.line(line)
        except MalformedLineError as error:
            malformed = str(error)
            break
        found += [event] if event is not None else []

    async def shown() -> AsyncIterator[Event]:
        for event in found:
            yield event

    async for event in redaction.events(shown(), job.secrets):
        progress = events.fold(progress, event)
        await artifacts.add(event)
        sinks.event(event)
    await artifacts.end({}, None)
    assert not artifacts.is_broken
    for code in (None, 0, 2):
        end = events.End(None, None, code, "", malformed and f"invalid data ({malformed})", 1.0)
        sinks.end(await redaction.result(events.conclude(progress, end), job.secrets))
    return malformed


@pytest.mark.hypothesis
@given(st.lists(_EVENTS, min_size=1, max_size=4))
@example([{"event": "runner_on_ok", "uuid": "a", MARK: NUMBER, "event_data": {"task_action": ["x"]}}])
@example([{"event": "playbook_on_stats", "uuid": "a", MARK: NUMBER, "event_data": {"failures": ["x"]}}])
@example([{"event": "playbook_on_stats", "uuid": "a", MARK: NUMBER, "event_data": {"ok": {"localhost": "x"}}}])
@example([{"event": "runner_on_ok", "uuid": "a", MARK: NUMBER, "event_data": ["x"]}])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_line_of_a_pod_is_read_or_an_error_of_its_run(
    make_job: Callable[..., Job], tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    job = make_job(run_dir=tmp_path / "run")
    job.secrets.learn([SECRET])
    asyncio.run(_run(job, [_dump(event) for event in drawn]))


def _dump(event: object) -> bytes:
    """Return JSON; the encoder of Python writes fewer levels."""
    if isinstance(event, dict):
        return b"{" + b",".join(_dump(name) + b":" + _dump(value) for name, value in event.items()) + b"}"
    levels, inner = 0, event
    while isinstance(inner, list) and len(inner) == 1:
        levels, inner = levels + 1, inner[0]
    if levels:
        return b"[" * levels + _dump(inner) + b"]" * levels
    if isinstance(event, list):
        return b"[" + b",".join(map(_dump, event)) + b"]"
    return json.dumps(event).encode()
