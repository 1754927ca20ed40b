"""Runs whose pod cannot be created or scheduled: they hold no worker, and nothing runs twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runner.core.engine.job import Job, Outcome, RunResult
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.jobs import RecordedRun
from runner.engines.pod.states import Patience, PodState
from runner.values.errors import PodWaitsError
from runner.values.objects import GVK, ObjectKey, ObjectRef
from tests.engines.pod.integration.bed import POD, Bed, begin, conclude, detach, events, succeed
from tests.kit.wait import patience

NO_NODE = "it cannot be scheduled: 0/3 nodes are available"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engines.pod.engine.Patience", lambda: Patience(node=0.2, gone=0.2, pod=60.0))


async def _forbid_pods(bed: Bed) -> str:
    """Forbid pods in the namespace; return the path of the quota."""
    return await bed.forbid("pods", "/api/v1", "pods", POD)


def _is_waiting(result: RunResult) -> bool:
    return result.outcome is Outcome.CANCELED and result.waits


async def _unscheduled(bed: Bed, engine: PodEngine, job: Job) -> RunResult:
    """Begin a run whose pod has no node; return its result."""
    running = asyncio.create_task(engine.run(job, events))
    record = await bed.record()
    bed.pods.states[record["run"]] = PodState(f"{record['run']}-x", waits=NO_NODE)
    return await conclude(engine, job, running)


async def _succeeds(bed: Bed, engine: PodEngine, job: Job) -> None:
    await succeed(*await begin(bed, engine, job))
    assert not job.secrets.is_exhausted


async def test_a_run_whose_pod_a_quota_forbids_holds_no_worker_and_the_quota_is_the_reason(bed: Bed) -> None:
    quota = await _forbid_pods(bed)
    engine, job = await bed.engine(), bed.job()
    async with asyncio.timeout(patience()):
        result = await conclude(engine, job)
    assert _is_waiting(result)
    assert result.message.startswith("The run waits for its pod: the pod cannot be created: exceeded quota: none")
    with pytest.raises(PodWaitsError, match="exceeded quota"):
        await engine.resume(bed.owner, 1, "apply")
    before = [each["metadata"]["uid"] for each in await bed.objects("jobs")]
    await bed.client.request("DELETE", quota)
    engine._shared.patience = replace(engine._shared.patience, renewal=0.0)
    with pytest.raises(PodWaitsError, match="exceeded quota"):
        await engine.resume(bed.owner, 1, "apply")
    (renewed,) = await bed.objects("jobs")
    assert renewed["metadata"]["uid"] not in before, "Kubernetes tries a new Job at once"
    bed.pods.states[f"run-{bed.owner.uid}-1"] = PodState("pod", "n1")
    found = await bed.resumed(engine)
    await _succeeds(bed, engine, bed.job(resumed=found))
    assert len(await bed.objects("jobs")) == 1


async def test_a_pod_without_a_node_remains_and_its_run_begins_as_soon_as_it_has_one(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    result = await _unscheduled(bed, engine, job)
    assert _is_waiting(result)
    assert NO_NODE in result.message
    with pytest.raises(PodWaitsError):
        await engine.resume(bed.owner, 1, "apply")
    name = f"run-{bed.owner.uid}-1"
    bed.pods.states[name] = PodState(f"{name}-x", "n1", waits="it is being started on node n1")
    found = await bed.resumed(engine)
    assert found.name == name
    await _succeeds(bed, engine, bed.job(resumed=found))


async def test_a_change_of_the_object_ends_the_wait(bed: Bed) -> None:
    engine = await bed.engine()
    assert _is_waiting(await _unscheduled(bed, engine, bed.job()))
    assert await engine.resume(bed.owner, 2, "apply") is None
    assert (await bed.left("jobs"), await bed.objects("secrets")) == ([], [])
    bed.pods.states.clear()  # if its pod is gone already, the next one has its name
    job = bed.job()
    await _succeeds(bed, engine, replace(job, generation=2))


async def test_a_wait_ends_when_its_resource_is_gone(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    assert _is_waiting(await _unscheduled(bed, engine, job))
    await engine.forget(job.run_dir)
    assert (await bed.left("jobs"), await bed.objects("secrets")) == ([], [])
    assert await engine.resume(bed.owner, 1, "apply") is None


async def test_the_pods_without_a_node_are_at_most_max_pods(bed: Bed) -> None:
    engine = await bed.engine()
    assert _is_waiting(await _unscheduled(bed, engine, bed.job()))  # maxPods is 1
    await bed.another_owner("two")
    assert _is_waiting(await _unscheduled(bed, engine, bed.job()))
    assert await engine.resume(bed.owner, 1, "apply") is None
    assert await bed.objects("secrets") == []


async def test_a_wait_that_is_too_long_fails_with_its_reason(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await bed.engine()
    assert _is_waiting(await _unscheduled(bed, engine, bed.job()))
    engine._shared.patience = replace(engine._shared.patience, start=0.0)
    found = await engine.resume(bed.owner, 1, "apply")
    job = bed.job(resumed=found)
    result = await conclude(engine, job)
    assert result.outcome is Outcome.NOT_STARTED
    assert NO_NODE in result.message


async def test_the_timeout_of_a_run_includes_its_wait(bed: Bed) -> None:
    engine = await bed.engine()
    assert _is_waiting(await _unscheduled(bed, engine, bed.job(deadline=3600)))
    # An hour passes.
    waiting = engine._waiting[bed.owner.uid].run
    assert waiting.ends_at is not None
    waiting.ends_at -= 3600
    found = await bed.resumed(engine)
    found = replace(found, record=replace(found.record, began=found.record.began - 3600))
    job = bed.job(3600, found)
    async with asyncio.timeout(patience()):
        result = await conclude(engine, job)
    assert result.message.startswith(f"the pod of the run did not start within 1h: {NO_NODE}")


async def test_a_pod_that_is_deleted_while_its_run_waits_is_lost(bed: Bed) -> None:
    engine = await bed.engine()
    assert _is_waiting(await _unscheduled(bed, engine, bed.job()))
    del bed.pods.states[f"run-{bed.owner.uid}-1"]
    found = await engine.resume(bed.owner, 1, "apply")
    job = bed.job(resumed=found)
    result = await conclude(engine, job)
    assert result.message == "The pod of the run was lost: it was deleted."


@pytest.mark.parametrize("change", [{"purpose": "plan"}, {"keeps_worker": True}], ids=["plan", "approved"])
async def test_a_plan_begins_anew_and_an_approved_run_keeps_its_worker(bed: Bed, change: dict[str, Any]) -> None:
    engine, job = await bed.engine(), bed.job()
    job = replace(job, **change)
    running = asyncio.create_task(engine.run(job, events))
    record = await bed.record()
    bed.pods.states[record["run"]] = PodState("pod", waits=NO_NODE)
    if "purpose" in change:
        assert _is_waiting(await conclude(engine, job, running))
        assert await bed.objects("secrets") == []
        return
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await asyncio.shield(running)
    agent = await bed.agent(record)
    await succeed(engine, job, running, agent)


async def _detached(bed: Bed) -> tuple[PodEngine, RecordedRun]:
    """Begin a run whose pod a quota forbids, and restart the operator; return what it finds."""
    await _forbid_pods(bed)
    first = await bed.engine()
    job = bed.job()
    running = asyncio.create_task(first.run(replace(job, keeps_worker=True), events))
    await bed.record()
    await detach(first, running)
    second = await bed.engine()
    found = await bed.resumed(second)
    return second, found


async def test_a_run_without_a_pod_still_waits_after_a_restart_and_nothing_of_it_is_withheld(bed: Bed) -> None:
    second, found = await _detached(bed)
    job = bed.job(resumed=found)
    async with asyncio.timeout(patience()):
        result = await conclude(second, job)
    assert _is_waiting(result), result
    assert "exceeded quota: none" in result.message
    assert not job.secrets.is_exhausted
    assert (second.begun_runs, second.resumed_runs) == (0, 1)
    with pytest.raises(PodWaitsError, match="exceeded quota"):
        await second.resume(bed.owner, 1, "apply")
    assert len(await bed.objects("jobs")) == 1


async def test_the_time_of_a_run_without_a_pod_does_not_begin_anew_after_a_restart(bed: Bed) -> None:
    second, found = await _detached(bed)
    second._shared.patience = replace(second._shared.patience, start=600.0)
    found = replace(found, record=replace(found.record, began=found.record.began - 601))
    job = bed.job(resumed=found)
    async with asyncio.timeout(patience()):
        result = await conclude(second, job)
    assert result.outcome is Outcome.NOT_STARTED
    assert result.message.startswith("the Job of the run has created no pod")


async def test_a_finalizer_that_a_quota_refuses_runs_in_the_namespace_of_the_operator(bed: Bed) -> None:
    """The quota can be used by pods of the resource, which Kubernetes deletes only after the finalizer."""
    tenant = f"{bed.namespace}-tenant"
    await bed.client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": tenant}})
    body: Any = {"metadata": {"name": "one"}}
    made = await bed.client.request("POST", f"/api/v1/namespaces/{tenant}/configmaps", body=body)
    bed.owner = ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(tenant, "one"), made["metadata"]["uid"])
    await bed.forbid("pods", "/api/v1", "pods", POD, namespace=tenant)
    engine, job = await bed.engine(), bed.job()
    engine._shared.patience = Patience(node=0.2, gone=0.2, pod=60.0, finalizer=2.0)
    job = replace(job, purpose="finalize")
    async with asyncio.timeout(patience()):
        assert _is_waiting(await conclude(engine, job))
        with pytest.raises(PodWaitsError, match="exceeded quota"):
            await engine.resume(bed.owner, 1, "finalize")
        await asyncio.sleep(2)
        found = await bed.resumed(engine, "finalize")
        again = replace(job, resumed=found)
        assert _is_waiting(await conclude(engine, again))
        assert await engine.resume(bed.owner, 1, "finalize") is None
    _, _, running, agent = await begin(bed, engine, job)
    result = await succeed(engine, job, running, agent)
    assert result.pod.startswith(f"{bed.namespace}/")
    await bed.client.request("DELETE", f"/api/v1/namespaces/{tenant}")


async def test_the_job_of_an_ended_run_is_deleted_if_a_sidecar_keeps_its_pod(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    running = asyncio.create_task(engine.run(job, events))
    record = await bed.record()
    agent = await bed.agent(record)
    bed.pods.states[record["run"]] = replace(bed.pods.states[record["run"]], has_others=True)
    await succeed(engine, job, running, agent)
    assert await bed.objects("jobs") == []
