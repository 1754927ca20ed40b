"""A controller whose outdated objects wait for the steps of a rollout. Requests of its ConfigMap can be refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from runner.core.engine.job import Job, Outcome, RunResult, UnrecordedRun
from runner.core.kube.watch_health import Unknown
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt
from runner.features.rollout.feature import ROLLOUT
from runner.features.rollout.fields import ROLLOUT_POLICY, RolloutPolicy, Step
from runner.features.rollout.hooks import Rollout
from runner.features.rollout.state import RolloutStore, State
from runner.values.errors import ApiUnavailableError, ConflictError, EngineError, ForbiddenError
from runner.values.objects import RUN_REQUESTED, ObjectKey, ObjectRef
from runner.values.slots import EMPTY
from tests.kit.watch_values import watch_value
from tests.unit.controller.attempts import attempt_value
from tests.unit.controller.bed import Bed

pytestmark = [pytest.mark.usefixtures("no_threads"), pytest.mark.virtual_time]

OLD, NEW = "0" * 24, "1" * 24
POLICY = RolloutPolicy((Step(1), Step(3)))
NOT_SERVED = Unknown(watch_value().gvk, "", "the API server does not serve this kind", 0.0)


class Store(RolloutStore):
    """A ConfigMap that other clients can change."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None), "ns", watch_value().gvk)
        self.stored = State()
        self.seen = self.version = 0
        self.saves: list[State] = []
        self.errors: list[Exception] = []
        self.lost: list[Exception] = []
        """As `errors`, but the write takes effect."""

    async def load(self) -> State:
        self._answer(self.errors)
        self.seen = self.version
        return self.stored

    async def save(self, state: State) -> None:
        await asyncio.sleep(0.3)
        self._answer(self.errors)
        if self.seen != self.version:
            raise ConflictError("the object has been modified", status=409)
        self.change(state)
        self._answer(self.lost)
        self.seen = self.version
        self.saves.append(state)

    def change(self, state: State) -> None:
        self.stored = state
        self.version += 1

    @staticmethod
    def _answer(errors: list[Exception]) -> None:
        if errors:
            raise errors.pop(0)


class Content:
    def __init__(self) -> None:
        self.value = NEW

    async def digest(self) -> str:
        return self.value


class World:
    """A controller with four objects that ran the old content."""

    def __init__(
        self, policy: RolloutPolicy = POLICY, workers: int = 2, *, health: bool = False, **options: Any
    ) -> None:
        self.store, self.content = Store(), Content()
        watch = watch_value(more=EMPTY.having(ROLLOUT_POLICY, policy), **options)
        self.bed = Bed(watch, workers=workers, health=health)
        self.rollout = Rollout(
            self.bed.scope, policy, self.store, cast("Any", self.content), self.bed.controller.queue.add
        )
        reconciler = self.bed.controller._reconciler
        reconciler._hooks = [*reconciler._hooks[:6], self.rollout, *reconciler._hooks[6:]]
        cast("Any", self.bed.engine).resume = lambda *_: asyncio.sleep(0.3)
        informer = cast("Any", self.bed.scope.informer)
        informer.all_keys = lambda: list(self.bed.server.stored)
        for number in range(4):
            self.create(number)

    def create(
        self, number: int, content: str = OLD, *, status: str = "True", reason: str = "Updated", **meta: Any
    ) -> None:
        conditions = [
            {"type": "Failure", "status": "False", "reason": "Successful", "message": "", "observedGeneration": 1},
            {"type": "Updated", "status": status, "reason": reason, "message": f"Last run: content {content}"},
        ]
        meta = {"name": f"o{number}", "namespace": "ns", "uid": f"uid-o{number}", "generation": 1, **meta}
        gvk = self.bed.server.gvk
        self.bed.server.put(
            {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": meta, "status": {"conditions": conditions}}
        )

    async def work(self, seconds: float) -> None:
        sweeping = asyncio.create_task(self.rollout.sweep())
        await self.bed.work(seconds)
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)

    @property
    def ran(self) -> list[str]:
        return [job.key.name for job in self.bed.engine.runs]

    def reason(self, number: int) -> str:
        return str(self.bed.server.condition("Updated", f"o{number}").get("reason"))


async def test_all_objects_run_step_by_step_and_each_is_stored_before_it_runs() -> None:
    world = World()
    await world.work(60)
    assert world.ran == ["o0", "o1", "o2", "o3"]
    assert world.store.stored.ended
    assert next(sorted(state.begun) for state in world.store.saves if state.begun) == ["uid-o0"]
    assert {world.reason(number) for number in range(4)} == {"Updated"}
    assert [each.reason for each in world.bed.events if each.action == "Rollout"] == ["RolloutStep"] * 3 + [
        "RolloutEnded"
    ]
    world.bed.engine.runs.clear()
    world.content.value = OLD
    await world.work(60)
    assert len(world.ran) == 4


async def test_a_failure_stops_the_rollout_and_other_objects_report_it() -> None:
    world = World()
    world.bed.engine.outcome = Outcome.FAILED
    await world.work(20)
    assert set(world.ran) == {"o0"}
    assert (world.reason(0), world.reason(1)) == ("Failed", "RolloutPaused")
    assert "RolloutPaused" in world.bed.reasons()


async def test_no_step_ends_and_no_object_begins_while_the_objects_are_unknown() -> None:
    world = World()
    await world.work(2)
    assert world.ran == ["o0"]
    kept, world.bed.server.unknown = dict(world.bed.server.stored), NOT_SERVED
    for key in kept:
        world.bed.server.stored.pop(key)
    before = world.store.stored
    await world.work(60)
    assert world.store.stored == before, "no object is not the same as no known object"
    world.bed.server.stored.update(kept)
    world.bed.controller.queue.add(ObjectKey("ns", "o1"), reasons.CREATED)
    await world.work(10)
    assert world.ran == ["o0"]
    assert (
        "until all objects are known: the objects of the kind" in world.bed.server.condition("Updated", "o1")["message"]
    )
    world.bed.server.unknown = None
    await world.work(60)
    assert world.ran[-3:] == ["o1", "o2", "o3"]


async def test_objects_that_are_unknown_at_the_start_of_the_operator_end_no_rollout() -> None:
    world = World()
    kept, world.bed.server.unknown = dict(world.bed.server.stored), NOT_SERVED
    world.bed.server.stored.clear()
    await world.work(60)
    assert not world.store.stored.ended
    world.bed.server.stored.update(kept)
    world.bed.server.unknown = None
    await world.work(60)
    assert world.ran == ["o0", "o1", "o2", "o3"]


async def test_an_object_whose_role_requests_another_run_ends_no_step_until_it_is_done() -> None:
    world = World()
    world.bed.engine.requeue_after, world.bed.engine.unfinished = 30.0, True
    await world.work(100)
    assert set(world.ran) == {"o0"}
    assert world.reason(0) == "InProgress"
    world.bed.engine.requeue_after, world.bed.engine.unfinished = None, False
    await world.work(60)
    assert world.ran[-3:] == ["o1", "o2", "o3"]
    assert world.store.stored.ended


async def test_an_object_that_waited_for_content_that_went_back_runs_although_nothing_changed() -> None:
    world = World()
    for number in range(4):
        world.create(
            number, NEW, status="False" if number == 2 else "True", reason="Waiting" if number == 2 else "Updated"
        )
    world.store.change(State("2" * 24, stable=NEW, limits=(1, 3, 4)))
    for number, reason in ((0, reasons.PRESENT), (2, ROLLOUT)):
        obj = world.bed.server.stored[ObjectKey("ns", f"o{number}")]
        decided = await world.rollout.before(attempt_value(obj, reasons.PRESENT))
        assert isinstance(decided, Attempt)
        assert decided.request.reason is reason, "skipUnchanged skips only the first one"
    await world.work(30)
    assert world.reason(2) == "Updated"


@pytest.mark.parametrize("begun", [True, False])
async def test_a_run_that_an_earlier_operator_began_counts_for_its_rollout_or_another_one_follows(
    *, begun: bool
) -> None:
    world = World()
    content = NEW if begun else "2" * 24
    world.store.change(State(content, limits=(1, 3, 4), begun=frozenset({"uid-o0"})))
    found = [UnrecordedRun("ident", "token")]

    async def resume(ref: ObjectRef, *_: Any) -> UnrecordedRun | None:
        return found.pop() if found and ref.key.name == "o0" else None

    cast("Any", world.bed.engine).resume = resume
    await world.work(60)
    assert world.ran.count("o0") == 1 + (not begun)
    assert world.store.stored.ended
    assert world.reason(0) == "Updated"


async def test_a_run_of_the_new_content_that_continues_when_the_operator_goes_back_is_followed_by_one_of_the_old() -> (
    None
):
    world = World()
    world.store.change(State("2" * 24, stable=OLD, begun=frozenset({"uid-o0"}), limits=(1, 3, 4)))
    world.content.value = OLD
    found = [UnrecordedRun("ident", "token")]

    async def resume(ref: ObjectRef, *_: Any) -> UnrecordedRun | None:
        return found.pop() if found and ref.key.name == "o0" else None

    cast("Any", world.bed.engine).resume = resume
    await world.work(60)
    assert world.ran.count("o0") == 2


async def test_content_that_is_edited_when_a_step_begins_reaches_no_object_of_the_former_rollout() -> None:
    world = World()
    save = world.store.save

    async def edited(state: State) -> None:
        await save(state)
        if state.step == 1 and world.content.value == NEW:
            world.content.value = "2" * 24
            world.bed.engine.outcome = Outcome.FAILED

    cast("Any", world.store).save = edited
    await world.work(60)
    assert world.store.stored.failed == {"uid-o0"}
    assert set(world.ran) == {"o0"}


async def test_an_object_that_ran_content_that_was_edited_back_meanwhile_runs_again() -> None:
    world = World()
    run = world.bed.engine.run

    async def long_run(*job: Any) -> RunResult:
        result = await run(*job)
        await asyncio.sleep(9)
        return result

    def edit() -> None:
        assert world.ran == ["o0"]
        world.content.value = OLD
        world.bed.server.edit("o1", labels={"edited": "true"})

    cast("Any", world.bed.engine).run = long_run
    asyncio.get_running_loop().call_later(1.0, edit)
    await world.work(60)
    assert world.ran.count("o0") == 2
    assert OLD in world.bed.server.condition("Updated", "o0")["message"]


async def test_a_restart_begins_with_the_first_step_and_an_operator_confirms_the_state_that_it_is_asked_for() -> None:
    world = World()
    await world.work(60)
    assert world.store.stored.ended
    world.store.change(replace(world.store.stored.restarted("17"), asked=5))
    assert (world.store.stored.ended, world.store.stored.step, world.store.stored.content) == (False, 0, "")
    world.bed.engine.runs.clear()
    await world.work(60)
    assert world.ran == ["o0", "o1", "o2", "o3"]
    confirmed = next(state for state in world.store.saves if state.confirmed == 5)
    assert (confirmed.content, confirmed.ended) == (world.store.stored.content, False)


async def test_changed_requested_new_and_deleted_objects_do_not_wait() -> None:
    world = World()
    world.store.change(State(NEW, paused="a user paused it"))
    await world.work(5)
    assert world.ran == []
    world.bed.server.edit("o1", generation=2)
    world.bed.server.edit("o2", annotations={RUN_REQUESTED: "now"})
    world.bed.server.create("new")
    await world.work(10)
    assert sorted(world.ran) == ["new", "o1", "o2"]
    assert world.store.stored.begun == {"uid-o1", "uid-o2"}


async def test_another_client_that_pauses_the_rollout_is_obeyed_at_once() -> None:
    world = World()
    world.rollout._fleet = None
    world.store.change(State(NEW, limits=(1, 3, 4)))
    await world.rollout._load()
    world.store.change(replace(world.store.stored, paused="a user paused it"))
    await world.work(20)
    assert world.ran == []


async def test_a_replica_with_older_content_does_not_begin_its_own_rollout() -> None:
    world = World()
    await world.work(3)
    world.store.change(State("2" * 24))
    await world.work(20)
    assert world.store.stored.content == "2" * 24
    assert len(world.ran) < 4


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ForbiddenError("configmaps is forbidden", status=403), "RequestRefused"),
        (ApiUnavailableError("reset", sent=True), ""),
        (ConflictError("modified", status=409), ""),
    ],
)
async def test_a_failed_request_of_the_state_delays_the_rollout(error: Exception, reason: str) -> None:
    world = World()
    world.store.errors = [error] * 12
    with capture_logs() as logs:
        await world.work(600)
    assert sorted(world.ran) == ["o0", "o1", "o2", "o3"]
    assert sum("Cannot store" in line["event"] for line in logs) == (not isinstance(error, ConflictError))
    assert (reason in world.bed.reasons()) is bool(reason)


async def test_a_write_whose_answer_is_lost_runs_no_object_twice() -> None:
    world = World()
    world.store.lost = [ApiUnavailableError("reset", sent=True)] * 3
    await world.work(600)
    assert sorted(world.ran) == ["o0", "o1", "o2", "o3"]


async def test_an_object_that_is_corrected_while_it_waits_runs_later() -> None:
    world = World()
    world.bed.server.edit("o0", annotations={"ansible.sdk.operatorframework.io/run-timeout": "never"})
    await world.work(60)
    assert sorted(world.ran) == ["o1", "o2", "o3"]
    world.bed.server.edit("o0", annotations={})
    await world.work(60)
    assert world.ran[-1] == "o0"


async def test_an_object_whose_run_cannot_be_started_ends_no_step_until_it_has_run() -> None:
    world = World(health=True)
    run, attempts = world.bed.engine.run, []

    async def started(job: Job, *sinks: Any) -> RunResult:
        attempts.append(job.key.name)
        if len(attempts) < 4:
            raise EngineError("the pod of the run cannot be created: exceeded quota")
        return await run(job, *sinks)

    cast("Any", world.bed.engine).run = started
    await world.work(60)
    assert attempts == ["o0"] * 4 + ["o1", "o2", "o3"]
    assert world.store.stored.ended


async def test_up_to_date_objects_cost_no_request_of_the_state() -> None:
    world = World()
    for number in range(4):
        world.create(number, NEW)
    world.store.change(State(NEW, ended=True, limits=(1, 3, 4)))
    await world.work(20)
    assert len(world.ran) == 4
    assert world.store.saves == []
