"""Every run goes the same way from its attempt to its result, whatever the engine is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runner.core.engine.artifacts import KeptRuns
from runner.core.engine.events import Progress
from runner.core.engine.job import Event, Job, Outcome, RunResult, TaskFailure
from runner.core.engine.pipeline import Ending, Pipeline, Stop
from runner.core.masking.masker import MASK
from runner.core.watches.watch import Role
from runner.values.errors import EngineError

TASK = {"task": "Log in", "task_path": "/r/main.yml:3", "host": "localhost"}
FAILED: Event = {"event": "runner_on_failed", "uuid": "a", "counter": 1, "stdout": "no hunter2hunter2"}
FAILED |= {"event_data": {**TASK, "res": {"msg": "no hunter2hunter2"}}}
STARTED: Event = {"event": "playbook_on_task_start", "uuid": "s", "counter": 2, "stdout": "", "event_data": TASK}


@dataclass
class Scripted:
    """An attempt with these events."""

    given: Iterable[Event] = ()
    known: Iterable[Event] = ()
    left: float | None = None
    code: int | None = 2
    waits: bool = False
    """Whether it ends on request only, or when it is killed."""
    obeys: bool = True
    files: Mapping[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def events(self) -> AsyncIterator[Event]:
        for event in self.given:
            yield event
        if self.waits:
            await self.ended.wait()

    def shown(self, event: Event) -> None:
        self.calls.append(f"shown {event['stdout']}")

    def stop(self) -> float:
        self.calls.append("stop")
        if self.obeys:
            self.ended.set()
        return 0.05

    async def kill(self) -> None:
        self.calls.append("kill")
        self.ended.set()

    async def ending(self, stopped: Outcome | None, progress: Progress) -> Ending:
        self.calls.append(f"ending after {progress.events}")
        return Ending(code=self.code, stopped=stopped, files={"rc": "2"})

    async def close(self) -> None:
        self.calls.append("close")


async def run(
    job: Job, attempt: Scripted, sink: Callable[[Event], None] = lambda _: None, stop: Stop | None = None
) -> RunResult:
    kept = KeptRuns(job.run_dir.parent, 0)

    async def begin() -> Scripted:
        return attempt

    try:
        return await Pipeline(kept).run(job, begin, sink, stop or Stop())
    finally:
        assert not kept._busy


async def test_events_are_masked_for_the_log_the_attempt_the_artifacts_and_the_result(
    make_job: Callable[..., Job],
) -> None:
    job, shown = make_job(), list[Event]()
    job.secrets.add_initial(["hunter2hunter2"])
    attempt = Scripted([FAILED])
    result = await run(job, attempt, shown.append)
    assert result.outcome is Outcome.FAILED
    assert [event["stdout"] for event in shown] == [f"no {MASK}"]
    assert attempt.calls == [f"shown no {MASK}", "ending after 1", "close"]
    assert result.failures == (TaskFailure("Log in", f"no {MASK}", "/r/main.yml:3"),)
    folder = job.run_dir / "artifacts" / job.ident
    assert ((folder / "stdout").read_text(), (folder / "rc").read_text()) == (f"no {MASK}\n", "2")


@pytest.mark.parametrize(("name", "alike"), [("siize", "size"), ("replicaz", "replicas"), ("colour", "")])
async def test_an_undefined_variable_is_compared_with_the_spec_and_the_defaults_of_the_role(
    make_job: Callable[..., Job], tmp_path: Path, name: str, alike: str
) -> None:
    (tmp_path / "defaults").mkdir()
    (tmp_path / "defaults/main.yml").write_text("---\n# a comment\nreplicas: 1\nmap:\n  colours: 1\n")
    event = {**FAILED, "event_data": {**TASK, "res": {"msg": f"'{name}' is undefined"}}}
    result = await run(make_job(content=Role("r", tmp_path), extra_vars={"size": 1}), Scripted([event]))
    assert result.failures[0].message == f"'{name}' is undefined" + (f" (did you mean {alike}?)" if alike else "")


async def test_known_events_count_for_the_result_only(make_job: Callable[..., Job]) -> None:
    job, shown = make_job(), list[Event]()
    result = await run(job, attempt := Scripted([], known=[FAILED]), shown.append)
    assert (shown, result.failures[0].task) == ([], "Log in")
    assert attempt.calls == ["ending after 1", "close"]
    assert (job.run_dir / "artifacts" / job.ident / "stdout").read_text() == ""


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "later"])
async def test_a_result_contains_no_text_that_may_hold_unknown_values(
    make_job: Callable[..., Job], *, late: bool
) -> None:
    job = make_job()
    if not late:
        job.secrets.exhaust("withheld")

    def sink(_: Event) -> None:
        job.secrets.exhaust("withheld")

    result = await run(job, Scripted([FAILED]), sink)
    assert result.failures == (TaskFailure("Log in", "withheld", "/r/main.yml:3"),)
    assert "hunter2" not in repr(result)


@pytest.mark.parametrize(("obeys", "calls"), [(True, ["stop"]), (False, ["stop", "kill"])])
async def test_a_run_beyond_its_time_is_stopped_and_killed_if_it_continues(
    make_job: Callable[..., Job], *, obeys: bool, calls: list[str]
) -> None:
    attempt = Scripted([STARTED], left=0.01, waits=True, obeys=obeys, code=None)
    result = await run(make_job(deadline=1.0), attempt)
    assert result.outcome is Outcome.TIMED_OUT
    assert attempt.calls == ["shown ", *calls, "ending after 1", "close"]


async def test_an_error_of_the_sink_closes_the_attempt_and_is_raised(make_job: Callable[..., Job]) -> None:
    def fail(_: Event) -> None:
        raise ValueError("the log is full")

    attempt = Scripted([FAILED], waits=True)
    with pytest.raises(ValueError, match="the log is full"):
        await run(make_job(), attempt, fail)
    assert attempt.calls == ["close"]


async def test_a_canceled_run_is_closed(make_job: Callable[..., Job]) -> None:
    attempt = Scripted([FAILED], waits=True)
    task = asyncio.create_task(run(make_job(), attempt))
    while not attempt.calls:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert attempt.calls[-1] == "close"


async def test_an_attempt_that_cannot_start_is_a_result(make_job: Callable[..., Job]) -> None:
    async def begin() -> Scripted:
        raise EngineError("no room")

    job = make_job()
    kept = KeptRuns(job.run_dir.parent, 0)
    result = await Pipeline(kept).run(job, begin, lambda _: None, Stop())
    assert (result.outcome, result.message) == (Outcome.NOT_STARTED, "no room")
    assert not kept._busy
