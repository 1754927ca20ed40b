"""`Ready` follows the dependents: with the result of a run and afterwards. Dependents and API server are simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.dependents.kind import Owned
from runner.core.engine.job import Outcome, TaskFailure
from runner.core.kube import health
from runner.core.kube.client import ListPage
from runner.core.kube.discovery import ApiResource
from runner.core.kube.health import Health, HealthState
from runner.core.queue import reasons
from runner.features.ready.following import FollowedDependents
from runner.values.errors import ApiUnavailableError, ForbiddenError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.kit.watch_values import watch_value
from tests.unit.controller.bed import KEY, Bed

pytestmark = [pytest.mark.quick, pytest.mark.virtual_time]

DEPLOYMENT = GVK("apps", "v1", "Deployment")
RESOURCE = ApiResource(DEPLOYMENT, "deployments", namespaced=True, verbs=frozenset(), subresources=frozenset())
NONE_READY, ONE_READY = (Health(HealthState.IN_PROGRESS, f"{number} of 2 ready") for number in (0, 1))
WAITING = {"waiting": {"reason": "ImagePullBackOff"}}


@dataclass
class Deployments:
    """Watch of Deployments, client, discovery and dependents."""

    gvk: GVK = DEPLOYMENT
    resource: ApiResource = RESOURCE
    health: dict[str, Health] = field(default_factory=dict)
    """Health of each Deployment."""
    listed: bool = True
    refused: tuple[str, ...] = ()
    """Namespaces in which the API server refuses to list Deployments."""
    is_resumed: bool = True
    unwatched_kinds: tuple[GVK, ...] = ()
    """Kinds that the API server refused to list at the start."""
    followers: dict[GVK, Callable[[ObjectRef | None], None]] = field(default_factory=dict)
    pods: list[Object] = field(default_factory=list)
    refusal: Exception | None = None
    """Answer to lists of pods."""
    reads: int = 0
    """Lists of pods so far."""

    @property
    def dependents(self) -> Deployments:
        return self

    def kinds_of(self, _gvk: GVK) -> list[Deployments]:
        return [self]

    def unwatched(self, _gvk: GVK) -> tuple[GVK, ...]:
        return self.unwatched_kinds

    def is_listed(self, _namespace: str) -> bool:
        return self.listed

    def is_refused(self, namespace: str) -> bool:
        return namespace in self.refused if namespace else bool(self.refused)

    def unknown(self, _namespace: str) -> str:
        return "Deployment: forbidden" if self.refused else "Deployment: not listed yet"

    def owned_by(self, _owner: ObjectRef) -> list[Owned]:
        return [Owned(DEPLOYMENT, ObjectKey("ns", name), name, now) for name, now in self.health.items()]

    async def get(self, _resource: ApiResource, _key: ObjectKey) -> Object:
        return {"spec": {"selector": {"matchLabels": {"app": "x"}}}}

    async def list_page(self, *_: Any) -> ListPage:
        self.reads += 1
        if self.refusal is not None:
            raise self.refusal
        return ListPage(self.pods, "", "", 0)


@dataclass
class Following:
    """A controller whose watch follows Deployments."""

    bed: Bed
    deployments: Deployments

    async def run(self, seconds: float = 2) -> None:
        self.bed.controller.queue.add(KEY, reasons.CHANGED)
        await self.bed.work(seconds)

    async def change(self, seconds: float = 0.1, **states: Health) -> None:
        """Change Deployments, and let time pass."""
        self.deployments.health |= states
        gvk = self.bed.scope.watch.gvk
        self.deployments.followers[gvk](ObjectRef(gvk, KEY))
        await asyncio.sleep(seconds)

    def ready(self) -> tuple[str, str, str]:
        condition = self.bed.server.condition("Ready")
        return condition["status"], condition["reason"], condition["message"]

    @property
    def writes(self) -> int:
        return self.bed.server.calls.count("PATCH status")


@pytest.fixture
async def following(no_threads: None) -> AsyncIterator[Following]:
    bed, deployments = Bed(watch_value(), health=True), Deployments()
    operator = SimpleNamespace(discovery=bed.server, dependents=deployments, client=deployments)
    hooks = FollowedDependents(bed.scope, cast("Any", operator), bed.status)
    bed.hooks.append(hooks)
    bed.scope.informer.all_keys = lambda: [KEY]  # type: ignore[method-assign]
    bed.server.create()
    task = asyncio.create_task(hooks.sweep())
    yield Following(bed, deployments)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


SUCCEEDED = ("True", "RunSucceeded", "Last reconciliation succeeded")


async def test_an_object_is_ready_when_its_dependents_are(following: Following) -> None:
    following.deployments.health["forge"] = NONE_READY
    following.deployments.pods = [{"spec": {}, "status": {"containerStatuses": [{"name": "a", "state": WAITING}]}}]
    seen: list[tuple[str, str]] = []
    following.bed.status.write = _noting(following.bed.status.write, seen)  # type: ignore[method-assign]
    await following.run()
    assert ("True", "RunSucceeded") not in seen, "the result of the run already contains the state"
    assert following.ready() == ("False", "DependentsNotReady", "Deployment forge: 0 of 2 ready: ImagePullBackOff ")
    await following.change(forge=health.READY)
    assert following.ready() == SUCCEEDED
    assert following.bed.server.condition("Reconciling") == {}
    await following.change(forge=Health(HealthState.FAILED, "failed"))
    assert following.ready()[:2] == ("False", "DependentFailed")
    assert following.bed.server.condition("Stalled")["status"] == "True"
    assert following.bed.server.condition("Successful")["status"] == "True"
    assert len(following.bed.engine.runs) == 1


def _noting(write: Callable[..., Any], seen: list[tuple[str, str]]) -> Callable[..., Any]:
    async def noted(resource: Any, obj: Any, report: Any, guard: Any, **more: Any) -> Any:
        ready = report.health.get("Ready")
        if ready:
            seen.append((ready["status"], ready["reason"]))
        return await write(resource, obj, report, guard, **more)

    return noted


async def test_unknown_dependents_are_reported_as_such_and_end_no_result_of_the_same_generation(
    following: Following,
) -> None:
    following.deployments.listed = False
    await following.run()
    assert following.ready() == ("Unknown", "DependentsUnknown", "Deployment: not listed yet")
    following.deployments.listed = True
    following.deployments.followers[following.bed.scope.watch.gvk](None)
    await asyncio.sleep(0.1)
    assert following.ready() == SUCCEEDED
    following.deployments.listed = False
    await following.run()
    assert following.ready() == SUCCEEDED
    following.deployments.refused = ("ns",)
    await asyncio.sleep(130)
    assert following.ready() == ("Unknown", "DependentsUnknown", "Deployment: forbidden")


@pytest.mark.parametrize(("kind", "waits"), [(GVK("batch", "v1", "Job"), True), (GVK("", "v1", "Secret"), False)])
async def test_an_object_is_not_ready_before_a_run_if_a_kind_was_refused_at_the_start(
    following: Following, kind: GVK, *, waits: bool
) -> None:
    obj = following.bed.server.stored[KEY]
    before = {"status": "False", "reason": "DependentsNotReady", "message": "Job a: failed", "observedGeneration": 1}
    following.bed.server.put({**obj, "status": {"conditions": [{"type": "Ready", **before}]}})
    following.deployments.unwatched_kinds = (kind,)
    await following.change()
    assert following.ready() == (("False", "DependentsNotReady", "Job a: failed") if waits else SUCCEEDED)
    await following.run()
    assert following.ready() == SUCCEEDED, "the run needed no object of this kind"


async def test_a_refusal_in_a_further_namespace_counts_too(following: Following) -> None:
    following.bed.scope.informer.namespaces = ("other", "ns")
    await following.run()
    following.deployments.refused = ("other",)
    await asyncio.sleep(130)
    assert following.ready() == SUCCEEDED
    following.deployments.refused = ("other", "ns")
    await asyncio.sleep(130)
    assert following.ready() == ("Unknown", "DependentsUnknown", "Deployment: forbidden")


@pytest.mark.parametrize(
    "now", [Health(HealthState.UNKNOWN, "it has no status yet"), health.UNREAD], ids=["no status", "not read"]
)
async def test_a_dependent_without_a_status_is_unknown(following: Following, now: Health) -> None:
    following.deployments.health["forge"] = now
    await following.run()
    assert following.ready() == ("Unknown", "DependentsUnknown", f"Deployment forge: {now.message}")


async def test_the_message_of_a_task_that_waited_for_a_workload_has_the_reason_of_its_pods(
    following: Following,
) -> None:
    following.deployments.health["forge"] = NONE_READY
    following.deployments.pods = [{"spec": {}, "status": {"containerStatuses": [{"name": "a", "state": WAITING}]}}]
    waited = TaskFailure("Wait", "Deployment ns/forge is not ready after 9 s: Deployment does not have …", "main.yml:3")
    other = TaskFailure("Other", "Deployment ns/other is not ready after 9 s", "main.yml:4")
    following.bed.engine.outcome, following.bed.engine.failures = Outcome.FAILED, (waited, other)
    await following.run()
    failure = following.bed.server.condition("Failure")["message"]
    assert failure.splitlines()[:2] == [
        "Deployment ns/forge is not ready after 9 s: ImagePullBackOff ",
        "Deployment ns/other is not ready after 9 s",
    ]
    assert following.ready()[2].startswith("Deployment ns/forge is not ready after 9 s: ImagePullBackOff ")


async def test_a_failed_run_has_priority_until_one_succeeds(following: Following) -> None:
    await following.run()
    following.bed.engine.outcome = Outcome.FAILED
    await following.run()
    failed = following.ready()
    assert failed[:2] == ("False", "RunFailed")
    await following.change(forge=NONE_READY)
    assert following.ready() == failed
    following.bed.engine.outcome = Outcome.SUCCEEDED
    await following.run(30)
    assert following.ready()[:2] == ("False", "DependentsNotReady")


async def test_a_new_generation_waits_for_its_run(following: Following) -> None:
    await following.run()
    following.bed.server.edit(generation=2)
    await following.change(forge=NONE_READY)
    assert following.ready() == SUCCEEDED
    await following.run()
    assert following.ready()[:2] == ("False", "DependentsNotReady")


async def test_a_role_keeps_its_own_condition(following: Following) -> None:
    following.bed.server.edit()
    obj = following.bed.server.stored[KEY]
    obj["status"] = {"conditions": [{"type": "Ready", "status": "True", "reason": "MyOwn", "message": "mine"}]}
    following.bed.server.put(obj)
    await following.run()
    await following.change(forge=NONE_READY)
    assert following.ready() == ("True", "MyOwn", "mine")


async def test_a_state_without_a_change_is_not_written(following: Following) -> None:
    following.deployments.health["forge"] = NONE_READY
    await following.run()
    before = following.writes
    for _ in range(20):
        await following.change(10)
    assert following.writes == before


async def test_a_flapping_dependent_causes_a_bounded_number_of_writes(following: Following) -> None:
    await following.run()
    before = following.writes
    for number in range(600):
        await following.change(1, forge=health.READY if number % 2 else NONE_READY)
    assert following.writes - before <= 60
    await asyncio.sleep(60)
    assert following.ready() == SUCCEEDED


async def test_a_long_rollout_causes_few_writes_and_its_end_is_written_at_once(following: Following) -> None:
    await following.run()
    before = following.writes
    for number in range(100):
        await following.change(0.5, forge=Health(HealthState.IN_PROGRESS, f"{number} of 100 ready"))
    assert following.writes - before <= 8
    await following.change(forge=health.READY)
    assert following.ready() == SUCCEEDED


async def test_pods_are_read_with_backoff_while_a_workload_is_not_ready(following: Following) -> None:
    following.deployments.health["forge"] = NONE_READY
    await following.run()
    await asyncio.sleep(600)
    assert 5 <= following.deployments.reads <= 16
    await following.change(forge=health.READY)
    reads = following.deployments.reads
    await asyncio.sleep(600)
    assert following.deployments.reads == reads


async def test_without_the_right_to_list_pods_the_message_has_no_reason(following: Following) -> None:
    following.deployments.health["forge"] = NONE_READY
    following.deployments.refusal = ForbiddenError("pods is forbidden", status=403)
    await following.run()
    await asyncio.sleep(300)
    assert following.ready() == ("False", "DependentsNotReady", "Deployment forge: 0 of 2 ready")
    assert following.deployments.reads == 1


async def test_an_outage_keeps_the_reason_that_was_read_before(following: Following) -> None:
    following.deployments.health["forge"] = NONE_READY
    following.deployments.pods = [{"spec": {}, "status": {"reason": "Evicted"}}]
    await following.run()
    following.deployments.refusal = ApiUnavailableError("down")
    await following.change(20, forge=ONE_READY)
    assert following.ready()[2] == "Deployment forge: 1 of 2 ready: Evicted"
