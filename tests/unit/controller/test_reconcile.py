"""What a reconcile does around a run, and in which order. Simulated are the API server, the engine and the proxy."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.core.engine.job import Job, Outcome, RunResult, canceled
from runner.core.kube.cache import Cache, Change
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt, Interim
from runner.core.reconcile.decisions import Done, RequeueAfter
from runner.core.reconcile.hooks import Addition, FinishedRun, Hooks, Skip
from runner.core.status import report
from runner.core.status.conditions import make
from runner.core.status.report import StatusReport
from runner.features.loopguard.guard import Contention, LoopGuard
from runner.features.loopguard.reports import ContentionReporter
from runner.features.plan.drift import DriftChecks
from runner.features.plan.drift_fields import DriftPolicy
from runner.values.errors import ApiUnavailableError, EngineError, KindNotFoundError, ServerError
from runner.values.objects import GVK, ObjectKey, ObjectRef
from tests.kit.watch_values import watch_value
from tests.unit.controller.bed import KEY, Bed

pytestmark = pytest.mark.usefixtures("no_threads")


class Noted(Hooks):
    """A feature that notes its calls, and what the status was then."""

    def __init__(self, name: str, noted: list[tuple[str, str]]) -> None:
        self.name = name
        self.noted = noted
        self.bed: Bed | None = None

    def _note(self, call: str) -> None:
        reason = self.bed.server.condition("Running").get("reason", "") if self.bed else ""
        self.noted.append((f"{self.name} {call}", reason))

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        self._note("before")
        return attempt

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - see Hooks
        self._note("status")
        return StatusReport(())

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - see Hooks
        self._note("after")
        return Addition()


@pytest.mark.virtual_time
async def test_the_result_is_in_the_status_before_a_feature_acts_after_the_run() -> None:
    noted: list[tuple[str, str]] = []
    features = [Noted("first", noted), Noted("second", noted)]
    bed = Bed(watch_value(), *features)
    for each in features:
        each.bed = bed
    bed.server.create()
    await bed.work(10)
    assert noted == [
        *[(f"{name} before", "") for name in ("first", "second")],
        *[(f"{name} status", "Running") for name in ("first", "second")],
        *[(f"{name} after", "Successful") for name in ("first", "second")],
    ]


@pytest.mark.virtual_time
async def test_the_engine_of_the_watch_ends_what_remains_of_an_object_that_is_gone() -> None:
    bed = Bed(watch_value())
    bed.server.create()
    await bed.work(10)
    (job,) = bed.engine.runs
    bed.server.stored.clear()
    bed.server.cache = Cache()
    bed.controller.queue.add(KEY, reasons.GONE)
    await bed.work(10)
    assert job.run_dir in bed.engine.forgotten


class Listed(Hooks):
    """A feature that adds a host to the status at the start of a run."""

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        before = attempt.obj.get("status", {}).get("hosts", [])
        return replace(attempt, interim={"hosts": Interim([{"name": "db", "address": "10.0.0.1"}], before)})


@pytest.mark.parametrize("before", [[], [{"name": "web", "address": "10.0.0.2", "ok": 1}]])
@pytest.mark.virtual_time
async def test_a_run_that_ansible_refuses_makes_the_object_unusable_and_leaves_no_host(before: list[Any]) -> None:
    bed = Bed(watch_value(), Listed())
    bed.engine.refused = "host 'db' of the resource: the project uses this name in its inventory"
    bed.server.create()
    if before:
        bed.server.stored[KEY]["status"] = {"hosts": before}
        bed.server.edit()
    await bed.work(60)
    failure = bed.server.condition("Failure")
    assert (failure["status"], failure["reason"]) == ("True", "Unusable")
    assert failure["message"] == f"{bed.engine.refused}. The object is not run until it changes"
    assert bed.server.stored[KEY]["status"].get("hosts", []) == before
    assert len(bed.engine.runs) == 1
    bed.engine.refused = ""
    bed.server.edit(generation=2)
    await bed.work(10)
    assert bed.server.condition("Successful")["status"] == "True"


class Broken(Hooks):
    """A feature that fails after the run."""

    def __init__(self, method: str, error: Exception) -> None:
        self._method = method
        self._error = error

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:  # noqa: ARG002 - see Hooks
        if self._method == "status":
            raise self._error
        return StatusReport(())

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - see Hooks
        if self._method == "after":
            raise self._error
        return Addition()


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("method", "error", "outcome"),
    [
        ("status", RuntimeError("defect"), Outcome.FAILED),
        ("after", RuntimeError("defect"), Outcome.SUCCEEDED),
        ("after", ServerError("down", status=500), Outcome.FAILED),
    ],
)
@pytest.mark.virtual_time
async def test_the_failure_of_a_feature_neither_loses_the_result_nor_repeats_the_run(
    capsys: pytest.CaptureFixture[str], method: str, error: Exception, outcome: Outcome
) -> None:
    noted: list[tuple[str, str]] = []
    bed = Bed(watch_value(), Broken(method, error), Noted("next", noted))
    bed.engine.outcome = outcome
    bed.server.create()
    await bed.work(1.5)
    assert len(bed.engine.runs) == 1
    is_success = outcome is Outcome.SUCCEEDED
    assert bed.server.condition("Successful" if is_success else "Failure")["status"] == "True"
    assert ("next after", "") in noted
    labels = {"GVK": str(bed.scope.watch.gvk), "feature": "Broken"}
    sample = "ansible_operator_feature_failures_total"
    assert bed.scope.metrics.registry.get_sample_value(sample, labels) == 1
    # The failed run counts as such, and the one that succeeded is not repeated before its period.
    (entry,) = bed.controller.queue.entries()
    assert (entry.reason.value, entry.seconds > 3600) == (("periodic resync", True) if is_success else ("retry", False))
    assert [each.runs for each in bed.controller.queue._failures.values()] == ([] if is_success else [1])
    assert "A feature failed after the run" in capsys.readouterr().out


class Confused(Hooks):
    """A feature with a defect in its handling of changes."""

    def changed(self, change: Change) -> None:
        raise ValueError(f"generation {change.new.generation}" if change.new else "gone")


@pytest.mark.virtual_time
async def test_a_feature_that_cannot_handle_a_change_costs_the_object_no_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bed = Bed(watch_value(), Confused())
    bed.server.create()
    await bed.work(10)
    bed.server.edit(generation=2)
    await bed.work(10)
    assert [job.generation for job in bed.engine.runs] == [1, 2]
    name = f"background/{bed.scope.watch.gvk.kind}/Confused"
    assert bed.scope.background.notes()[name] == "ValueError: generation 2"
    output = capsys.readouterr().out
    assert output.count("Background work failed; the change is handled without it") == output.count("Traceback") == 2


class Missing(Hooks):
    """A feature whose files are away for a while, before runs and in the background."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.swept = 0

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        self.left -= 1
        if self.left >= 0:
            raise EngineError("playbooks does not exist")
        return attempt

    async def sweep(self) -> None:
        self.swept += 1
        if self.swept < 3:
            raise FileNotFoundError("playbooks")


@pytest.mark.virtual_time
async def test_an_object_whose_role_is_missing_says_so_and_runs_when_it_is_there() -> None:
    bed = Bed(watch_value(), Missing(2), health=True)
    bed.server.create()
    await bed.work(0.5)
    assert "playbooks does not exist" in bed.server.condition("Failure")["message"]
    assert bed.server.condition("Reconciling")["reason"] == "NotRunnable", "tools that wait go on waiting"
    assert bed.engine.runs == []
    await bed.work(30)
    assert bed.server.condition("Successful")["status"] == "True"


@pytest.mark.virtual_time
async def test_background_work_of_a_feature_that_fails_begins_again_and_the_kind_goes_on() -> None:
    missing = Missing(0)
    bed = Bed(watch_value(), missing)
    following = asyncio.create_task(bed.controller.follow())
    bed.server.create()
    await bed.work(20)
    assert missing.swept == 3
    assert "FileNotFoundError: playbooks" in bed.scope.background.notes()["background/Memcached/Missing"]
    assert len(bed.engine.runs) == 1
    assert not following.done()
    following.cancel()


@pytest.mark.virtual_time
async def test_a_contention_of_a_kind_that_is_not_served_ends_nothing_and_is_reported_later() -> None:
    bed = Bed(watch_value())
    bed.server.create()
    bed.server.refuse = lambda method, *_: KindNotFoundError("not served") if method == "FIND" else None
    reporter = ContentionReporter(bed.scope, cast("Any", bed.server), bed.status, LoopGuard(lambda *_: None))
    following = asyncio.create_task(reporter.sweep())
    source = ObjectRef(GVK("apps", "v1", "Deployment"), ObjectKey("ns", "web"))
    reporter.report(ObjectKey("ns", "one"), Contention(source, "changed", (), "", "dependent"))
    await asyncio.sleep(15)
    assert not following.done()
    bed.server.refuse = lambda *_: None
    await asyncio.sleep(15)
    assert bed.server.condition("Contended")["reason"] == "DependentChangedAgain"
    following.cancel()


@pytest.mark.virtual_time
async def test_a_contention_that_cannot_be_reported_delays_no_other_one() -> None:
    bed = Bed(watch_value())
    bed.server.create()
    bed.server.refuse = lambda method, *_: KindNotFoundError("not served") if method == "FIND" else None
    reporter = ContentionReporter(bed.scope, cast("Any", bed.server), bed.status, LoopGuard(lambda *_: None))
    following = asyncio.create_task(reporter.sweep())
    source = ObjectRef(GVK("apps", "v1", "Deployment"), ObjectKey("ns", "web"))
    reporter.report(ObjectKey("ns", "one"), Contention(source, "changed", (), "", "dependent"))
    await asyncio.sleep(1)
    bed.server.create("two")
    bed.server.refuse = lambda *_: None
    reporter.report(ObjectKey("ns", "two"), Contention(source, "changed", (), "", "dependent"))
    await asyncio.sleep(1)
    assert bed.server.condition("Contended", "two")["reason"] == "DependentChangedAgain"
    await asyncio.sleep(10)
    assert bed.server.condition("Contended")["reason"] == "DependentChangedAgain"
    following.cancel()


@pytest.mark.virtual_time
async def test_a_run_that_succeeds_ends_the_drift_of_its_object_in_the_metrics() -> None:
    watch = watch_value()
    bed = Bed(watch)
    checks = DriftChecks(bed.scope, DriftPolicy(60.0, repair=True), cast("Any", None), bed.status)
    cast("Any", bed.controller._reconciler)._hooks.append(checks)
    checks.drifted.add(ObjectKey("ns", "one"))
    bed.server.create()
    labels = {"GVK": str(watch.gvk)}
    assert bed.scope.metrics.registry.get_sample_value("ansible_operator_drifted_objects", labels) == 1
    await bed.work(2)
    assert bed.scope.metrics.registry.get_sample_value("ansible_operator_drifted_objects", labels) == 0


class Added(Hooks):
    """A feature with a condition of its own, and another run to request."""

    def __init__(self, message: str) -> None:
        self.message = message

    async def after(self, attempt: Attempt, run: FinishedRun) -> Addition:  # noqa: ARG002 - see Hooks
        return Addition(StatusReport((make("Prunable", "True", "Unused", self.message),)), RequeueAfter(20.0))


@pytest.mark.virtual_time
async def test_a_condition_that_a_feature_adds_is_written_only_if_it_changed() -> None:
    feature = Added("a")
    bed = Bed(watch_value(), feature)
    bed.server.create()
    await bed.work(10)
    assert bed.server.condition("Prunable")["message"] == "a"
    assert bed.server.calls.count("PATCH status") == 3  # Running, the result, the condition
    bed.server.calls.clear()
    await bed.work(15)  # the run that the feature requested
    assert len(bed.engine.runs) == 2
    assert bed.server.calls.count("PATCH status") == 2
    assert "GET status" not in bed.server.calls


class Skipped(Hooks):
    """A feature that skips each run."""

    async def before(self, attempt: Attempt) -> Skip | Attempt:  # noqa: ARG002 - see Hooks
        return Skip(Done(None), report.paused())


@pytest.mark.virtual_time
async def test_a_skipped_run_reports_why() -> None:
    bed = Bed(watch_value(), Skipped())
    bed.server.create()
    await bed.work(5)
    assert bed.engine.runs == []
    assert bed.server.condition("Running")["reason"] == "Paused"


class Slow(Hooks):
    """A feature that needs a while to remove what it keeps of a former object."""

    async def gone(self, key: ObjectKey) -> None:  # noqa: ARG002 - see Hooks
        await asyncio.sleep(2)


@pytest.mark.virtual_time
async def test_an_object_that_is_created_again_while_the_files_of_the_former_one_are_removed_is_run() -> None:
    bed = Bed(watch_value(), Slow())
    bed.server.create()
    await bed.work(5)
    bed.server.edit(deletionTimestamp="2027-01-15T08:00:00Z")
    working = asyncio.create_task(bed.work(10))
    await asyncio.sleep(1)
    bed.server.create(uid="another")
    await working
    assert len(bed.engine.runs) == 2


@pytest.mark.virtual_time
async def test_a_lost_answer_while_the_rest_of_a_run_is_ended_does_not_repeat_the_run() -> None:
    bed = Bed(watch_value())
    bed.engine.unrecorded = ApiUnavailableError("reset")
    bed.server.create()
    await bed.work(60)
    assert len(bed.engine.runs) == 1
    assert bed.server.condition("Successful")["status"] == "True"
    assert bed.reasons() == ["RunStarted", "RunSucceeded"]


@pytest.mark.parametrize(
    ("during", "follows"),
    [
        ({}, " The run is repeated."),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other/one"]}, ""),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []}, ""),
    ],
    ids=["exists", "being deleted", "gone"],
)
@pytest.mark.virtual_time
async def test_a_lost_run_is_reported_as_repeated_only_if_its_object_is_not_deleted(
    during: dict[str, Any], follows: str
) -> None:
    bed = Bed(watch_value())

    async def lose(job: Job, _sink: Any) -> RunResult:
        bed.engine.runs.append(job)
        await asyncio.sleep(1)
        if during:
            bed.server.edit(**during)
        why = "The pod of the run was lost: it was deleted."
        return replace(canceled(why, 1.0), lost=True)

    bed.engine.run = lose  # type: ignore[method-assign]
    bed.server.create()
    await bed.work(1.5)
    (note,) = [each.note for each in bed.events if each.reason == "RunCanceled"]
    assert note == f"The pod of the run was lost: it was deleted.{follows}"
    await bed.work(600)
    assert (len(bed.engine.runs) > 1) == bool(follows)
