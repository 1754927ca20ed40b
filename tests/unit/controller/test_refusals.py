"""What follows refused, failed and lost requests of the operator itself about an object, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.core.queue.reasons import ReconcileRequest
from runner.core.reconcile.attempt import RECONCILE_PERIOD
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.decisions import Result
from runner.core.reconcile.own_hooks import Refusals
from runner.core.watches.watch import Finalizer, Role, Watch
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    ForbiddenError,
    InvalidError,
    KindNotFoundError,
    NotFoundError,
    ServerError,
)
from runner.values.objects import ObjectKey
from tests.kit.watch_values import watch_value
from tests.unit.controller.bed import KEY, Bed

pytestmark = pytest.mark.usefixtures("no_threads")

FINALIZER = "cache.example.com/finalizer"
POLICY = InvalidError(
    "things \"one\" is forbidden: ValidatingAdmissionPolicy 'keep' denied request: finalizers stay", status=422
)
WEBHOOK = ForbiddenError('admission webhook "x.example.com" denied the request: finalizers stay', status=403)
LARGE = ApiError("the object is too large", status=413)
DELETED = {"deletionTimestamp": "2027-01-15T08:00:00Z"}


def _finalized() -> Watch:
    return watch_value(finalizer=Finalizer(FINALIZER, Role("cleanup", Path("/roles/cleanup")), {}, None))


def _refuse(bed: Bed, error: Exception, subresource: str = "", name: str = "one") -> None:
    """Answer patches of one object with an error."""

    def refuse(method: str, of: str, key: ObjectKey) -> Exception | None:
        return error if (method, of, key.name) == ("PATCH", subresource, name) else None

    bed.server.refuse = refuse


def _accept(bed: Bed) -> None:
    bed.server.refuse = lambda *_: None


@pytest.mark.parametrize("error", [POLICY, WEBHOOK, LARGE], ids=["policy", "webhook", "too large"])
@pytest.mark.virtual_time
async def test_a_refused_removal_of_the_finalizer_is_reported_once_and_repeated_without_another_run(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    bed = Bed(_finalized())
    bed.server.create(finalizers=[FINALIZER], **DELETED)
    _refuse(bed, error)
    working = asyncio.create_task(bed.work(3600))
    await asyncio.sleep(60)
    bed.server.create("neighbour", finalizers=[FINALIZER])
    await asyncio.sleep(5)
    # One worker served the neighbour, although the removal is refused.
    assert bed.server.condition("Successful", "neighbour")["status"] == "True"
    await asyncio.sleep(1800)
    attempts = bed.server.calls.count("PATCH object")
    assert 8 <= attempts <= 15
    condition = bed.server.condition("RequestRefused")
    assert condition["status"] == "True"
    assert str(error) in condition["message"]
    assert bed.server.condition("Successful")["status"] == "True"
    assert bed.reasons().count("RequestRefused") == 1
    _accept(bed)
    bed.server.edit(annotations={"any": "change"})
    await asyncio.sleep(5)
    assert KEY not in bed.server.stored
    assert [job.key.name for job in bed.engine.runs] == ["one", "neighbour"]
    working.cancel()
    assert capsys.readouterr().out.count("The API server refuses a request about the object") == 1


@pytest.mark.virtual_time
async def test_a_refusal_is_logged_also_after_an_outage_that_many_objects_noticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bed = Bed(_finalized())
    refusals = next(hooks for hooks in bed.hooks if isinstance(hooks, Refusals))
    for number in range(1001):
        refusals.retry(ObjectKey("ns", f"other-{number}"), ServerError("away", status=503))
    _refuse(bed, POLICY)
    bed.server.create()
    capsys.readouterr()
    await bed.work(30)
    assert capsys.readouterr().out.count("refuses a request about the object") == 1


@pytest.mark.virtual_time
async def test_a_lost_answer_to_the_removal_of_the_finalizer_repeats_no_run() -> None:
    bed = Bed(_finalized())
    bed.server.create(finalizers=[FINALIZER, "other/one"], **DELETED)

    def lose(method: str, subresource: str, _key: ObjectKey) -> Exception | None:
        return ApiUnavailableError("reset", sent=True) if (method, subresource) == ("PATCH", "") else None

    bed.server.lose = lose
    await bed.work(60)
    assert len(bed.engine.runs) == 1
    assert bed.server.stored[KEY]["metadata"]["finalizers"] == ["other/one"]
    assert bed.server.calls.count("PATCH object") == 1
    assert bed.reasons() == ["FinalizerStarted", "FinalizerSucceeded"]


@pytest.mark.virtual_time
async def test_a_conflict_at_the_removal_of_the_finalizer_reads_the_object_again() -> None:
    bed = Bed(_finalized())
    bed.server.create(finalizers=[FINALIZER], **DELETED)
    first = True

    def race(method: str, subresource: str, _key: ObjectKey) -> Exception | None:
        nonlocal first
        if first and (method, subresource) == ("PATCH", ""):
            first = False
            bed.server.edit(finalizers=["other/one", FINALIZER])
        return None

    bed.server.refuse = race
    await bed.work(5)
    assert bed.server.stored[KEY]["metadata"]["finalizers"] == ["other/one"]
    assert bed.server.calls.count("PATCH object") == 2
    assert len(bed.engine.runs) == 1


@pytest.mark.virtual_time
async def test_a_refused_addition_of_the_finalizer_is_reported_and_ends_with_a_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bed = Bed(_finalized())
    bed.server.create()
    _refuse(bed, POLICY)
    working = asyncio.create_task(bed.work(3600))
    await asyncio.sleep(300)
    assert bed.server.calls.count("PATCH object") < 12
    assert "finalizers stay" in bed.server.condition("RequestRefused")["message"]
    assert bed.reasons() == ["RequestRefused"]
    assert bed.engine.runs == []
    _accept(bed)
    bed.server.edit(annotations={"any": "change"})
    await asyncio.sleep(3)
    assert len(bed.engine.runs) == 1
    assert bed.server.condition("RequestRefused")["status"] == "False"
    working.cancel()
    output = capsys.readouterr().out
    assert output.count("The API server refuses a request about the object") == 1
    assert "Conflict" not in output


@pytest.mark.parametrize("error", [KindNotFoundError("not served"), NotFoundError("no", status=404)], ids=str)
@pytest.mark.virtual_time
async def test_a_kind_that_is_not_found_for_a_while_does_not_end_the_periodic_runs(error: Exception) -> None:
    bed = Bed(watch_value())
    bed.server.refuse = lambda method, *_: error if method == "FIND" else None
    bed.server.create()
    working = asyncio.create_task(bed.work(80_000))
    await asyncio.sleep(30)
    assert bed.engine.runs == []
    _accept(bed)
    await asyncio.sleep(70)
    assert len(bed.engine.runs) == 1
    await asyncio.sleep(72_000)
    assert len(bed.engine.runs) >= 2
    working.cancel()


@pytest.mark.virtual_time
async def test_an_annotation_that_is_corrected_while_the_error_is_reported_runs_the_object() -> None:
    bed = Bed(watch_value())
    bed.server.create(annotations={RECONCILE_PERIOD: "soon"})

    def correct(method: str, subresource: str, _key: ObjectKey) -> Exception | None:
        if (method, subresource) == ("PATCH", "status"):
            _accept(bed)
            bed.server.edit(annotations={RECONCILE_PERIOD: "1h"})
        return None

    bed.server.refuse = correct
    await bed.work(10)
    assert len(bed.engine.runs) == 1
    assert bed.server.condition("Successful")["status"] == "True"


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "accepted"])
@pytest.mark.virtual_time
async def test_after_a_restart_a_finalizer_that_has_run_does_not_run_again(*, refused: bool) -> None:
    first, second = Bed(_finalized()), Bed(_finalized())
    first.server.create(finalizers=[FINALIZER], **DELETED)
    _refuse(first, POLICY)
    await first.work(30)
    assert len(first.engine.runs) == 1
    second.server.put(first.server.stored[KEY])
    if refused:
        _refuse(second, POLICY)
    await second.work(30)
    assert second.engine.runs == []
    assert (KEY in second.server.stored) == refused


@pytest.mark.virtual_time
async def test_no_run_begins_while_the_status_cannot_be_written() -> None:
    bed = Bed(watch_value())
    _refuse(bed, ServerError("down", status=503), "status")
    bed.server.create()
    await bed.work(30)
    assert bed.engine.runs == []
    _accept(bed)
    await bed.work(70)
    assert len(bed.engine.runs) == 1


@pytest.mark.virtual_time
async def test_an_object_runs_again_after_a_defect_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    apply, defects = Controller._apply, [RuntimeError("a defect of the test")]

    def fail(self: Controller, request: ReconcileRequest, result: Result) -> None:
        if defects:
            raise defects.pop()
        apply(self, request, result)

    monkeypatch.setattr(Controller, "_apply", fail)
    bed = Bed(watch_value())
    bed.server.create()
    await bed.work(60)
    assert len(bed.engine.runs) == 2
    assert bed.server.condition("Successful")["status"] == "True"
