"""When an approval of a plan is used. Simulated are the API server, the engine, the proxy and the runs of plans."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.engine.job import Job, Outcome, RunResult
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.hooks import Hooks, Skip
from runner.core.watches.watch import Finalizer
from runner.features.plan.changes import ResourcePlan
from runner.features.plan.hooks import PlanReconciler
from runner.features.plan.plan_status import APPROVE
from runner.features.plan.runs import PlanRun
from runner.features.plan.trial.overlay import Overlay
from runner.values.errors import ApiUnavailableError, ServerError
from runner.values.objects import MODE, ObjectKey, ObjectRef
from tests.kit.watch_values import watch_value
from tests.unit.controller.bed import KEY, Bed

pytestmark = [pytest.mark.usefixtures("no_threads"), pytest.mark.virtual_time]


class _Plans:
    """Plan runs that succeed, and that would change nothing."""

    async def run(self, attempt: Attempt) -> PlanRun:
        ref = ObjectRef.of(attempt.resource.gvk, attempt.obj)
        result = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)
        return PlanRun(result, Overlay(), ResourcePlan(ref, "complete"))


class _Record(Hooks):
    """A feature that reads a record before the run, as prune does."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return attempt


async def _fresh() -> str:
    return "role"


async def _approved() -> tuple[Bed, _Record]:
    """Return an object whose plan a user has just approved."""
    plain, record = watch_value(), _Record()
    bed = Bed(replace(plain, finalizer=Finalizer("example.com/finalizer", plain.content, {}, None)))
    contents = cast("Any", (SimpleNamespace(fresh=_fresh),) * 2)
    runs, server = cast("Any", (bed.hooks[-2], bed.server))
    bed.hooks += [PlanReconciler(bed.scope, server, runs, cast("Any", _Plans()), bed.status, contents, ()), record]
    bed.server.create(annotations={MODE: "approve"})
    await bed.work(10)
    approved = bed.server.stored[KEY]["status"]["plan"]["hash"]
    bed.server.edit(annotations={MODE: "approve", APPROVE: approved}, generation=1)
    return bed, record


def _state(bed: Bed) -> str:
    return str(bed.server.stored[KEY]["status"]["plan"]["approval"]["state"])


def _fails(bed: Bed, number: int, *, lost: bool) -> None:
    """Let one write fail after the approval: before it has an effect, or its answer."""
    writes = 0

    def fail(method: str, _subresource: str, key: ObjectKey) -> Exception | None:
        nonlocal writes
        writes += method == "PATCH"
        if method != "PATCH" or writes != number:
            return None
        return ApiUnavailableError("the connection was reset") if lost else ServerError("unavailable", status=503)

    if lost:
        bed.server.lose = fail
    else:
        bed.server.refuse = fail


@pytest.mark.parametrize("lost", [False, True], ids=["503", "lost answer"])
@pytest.mark.parametrize("number", [1, 2, 3], ids=["approval", "finalizer", "Running"])
async def test_an_outage_before_the_run_does_not_use_the_approval(number: int, *, lost: bool) -> None:
    bed, _ = await _approved()
    _fails(bed, number, lost=lost)
    bed.controller.queue.add(KEY, reasons.REQUESTED)
    await bed.work(60)
    assert (len(bed.engine.runs), _state(bed)) == (1, "Succeeded")


async def test_a_record_that_cannot_be_read_before_the_run_does_not_use_the_approval() -> None:
    bed, record = await _approved()
    record.error = ServerError("unavailable", status=503)
    bed.controller.queue.add(KEY, reasons.REQUESTED)
    await bed.work(60)
    assert (len(bed.engine.runs), _state(bed)) == (1, "Succeeded")


async def test_an_outage_when_the_run_can_have_begun_uses_the_approval() -> None:
    bed, _ = await _approved()

    async def lose(job: Job, _sink: Any) -> RunResult:
        bed.engine.runs.append(job)
        await asyncio.sleep(1)
        raise ApiUnavailableError("the connection was reset")

    bed.engine.run = lose  # type: ignore[method-assign]
    bed.controller.queue.add(KEY, reasons.REQUESTED)
    await bed.work(600)
    assert (len(bed.engine.runs), _state(bed)) == (1, "Interrupted")
