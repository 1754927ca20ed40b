"""A namespace is deleted whose resource has a finalizer: it runs in the namespace of the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from runner.core.engine.job import Job, Outcome
from runner.core.kube.client import PatchType
from runner.core.kube.discovery import ApiResource
from runner.engines.pod.jobs import JOBS
from runner.values.objects import GVK, PRIMARY_RESOURCE, Object, ObjectKey, ObjectRef
from tests.engines.pod.integration.bed import POD, Bed, begin, detach, events, succeed
from tests.kit.wait import until

FINALIZER = "test.example.com/role"


class Doomed:
    """A namespace beside that of the operator, with a resource that has a finalizer."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.name = f"{bed.namespace}-doomed"
        self.path = f"/api/v1/namespaces/{self.name}"

    async def create(self) -> None:
        body: dict[str, Any] = {"metadata": {"name": self.name}}
        await self.bed.client.request("POST", "/api/v1/namespaces", body=body)
        body = {"metadata": {"name": "one", "finalizers": [FINALIZER]}}
        made = await self.bed.client.request("POST", f"{self.path}/configmaps", body=body)
        key = ObjectKey(self.name, "one")
        self.bed.owner = ObjectRef(GVK("", "v1", "ConfigMap"), key, made["metadata"]["uid"])

    async def delete(self) -> None:
        """Delete the namespace, and wait until nothing can be created in it."""
        await self.bed.client.request("DELETE", self.path)

    async def release(self) -> None:
        """Remove the finalizer, as the controller does after a success, and wait until the namespace is gone."""
        await self.without_finalizer("configmaps/one")

        async def is_gone() -> bool:
            return not await self.left()

        await until(is_gone, f"namespace {self.name} to go")

    async def without_finalizer(self, name: str) -> None:
        """Remove the finalizers of an object, which the namespace controller may change at the same time."""
        patch = {"metadata": {"finalizers": None}}
        await self.bed.client.request("PATCH", f"{self.path}/{name}", body=patch, content_type=PatchType.MERGE.value)

    async def left(self) -> list[Object]:
        found = await self.bed.client.request("GET", "/api/v1/namespaces")
        return [each for each in found["items"] if each["metadata"]["name"] == self.name]

    def finalizes(self, **changes: Any) -> Job:
        return self.bed.job(**{"purpose": "finalize", **changes})


@pytest.fixture
async def doomed(bed: Bed) -> AsyncIterator[Doomed]:
    made = Doomed(bed)
    await made.create()
    yield made
    if await made.left():
        await made.delete()
        await made.release()


async def test_the_finalizer_runs_in_the_namespace_of_the_operator_and_the_namespace_goes(
    bed: Bed, doomed: Doomed
) -> None:
    await doomed.delete()
    engine, job = await bed.engine(), doomed.finalizes()
    running = asyncio.create_task(engine.run(job, events))
    agent = await bed.agent(await bed.record())
    (made,) = await bed.objects("jobs")
    assert "ownerReferences" not in made["metadata"]  # the garbage collector would delete it
    assert made["metadata"]["annotations"][PRIMARY_RESOURCE] == f"{doomed.name}/one"
    result = await succeed(engine, job, running, agent)
    assert result.pod.startswith(f"{bed.namespace}/")
    assert await bed.objects("secrets") == []
    await doomed.release()


async def test_a_deletion_between_the_record_and_the_job_leads_to_the_same(
    bed: Bed, doomed: Doomed, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = bed.client.create

    async def delete_first(resource: ApiResource, namespace: str, obj: Mapping[str, Any]) -> Object:
        if resource == JOBS and namespace == doomed.name:
            await doomed.delete()
        return await create(resource, namespace, obj)

    monkeypatch.setattr(bed.client, "create", delete_first)
    engine, job = await bed.engine(), doomed.finalizes()
    await succeed(*await begin(bed, engine, job))


async def test_the_next_operator_continues_that_finalizer(bed: Bed, doomed: Doomed) -> None:
    await doomed.delete()
    first = await bed.engine()
    running = asyncio.create_task(first.run(doomed.finalizes(), events))
    record = await bed.record()
    agent = await bed.agent(record)
    await detach(first, running)
    agent.client.close()
    second = await bed.engine()
    found = await bed.resumed(second, "finalize")
    assert found.namespace == bed.namespace
    job = doomed.finalizes(resumed=found)
    running = asyncio.create_task(second.run(job, events))
    agent = await bed.agent(record)
    await succeed(second, job, running, agent)


async def test_what_remains_of_a_finalizer_whose_resource_is_gone_is_deleted_at_start(bed: Bed, doomed: Doomed) -> None:
    await doomed.delete()
    first = await bed.engine()
    running = asyncio.create_task(first.run(doomed.finalizes(), events))
    await bed.record()
    await detach(first, running)
    second = await bed.engine()
    await second.sweep(bed.owner.gvk, lambda _, uid: uid != bed.owner.uid, finalizes=True)
    assert len(await bed.objects("secrets")) == 1
    await second.sweep(GVK("", "v1", "Secret"), lambda _key, _uid: True, finalizes=True)
    assert len(await bed.objects("secrets")) == 1
    await second.sweep(bed.owner.gvk, lambda key, _: key == bed.owner.key, finalizes=True)
    assert (await bed.left("jobs"), await bed.objects("secrets")) == ([], [])


async def test_what_remains_of_a_finalizer_goes_when_its_resource_goes(bed: Bed, doomed: Doomed) -> None:
    await doomed.delete()
    engine, job = await bed.engine(), doomed.finalizes()
    running = asyncio.create_task(engine.run(job, events))
    agent = await bed.agent(await bed.record())
    agent.succeed()
    assert (await running).outcome is Outcome.SUCCEEDED
    leaving = asyncio.create_task(agent.leave())
    await engine.forget(job.run_dir)  # its status could not be written
    await leaving
    assert await bed.objects("secrets") == []


async def test_an_operator_that_does_not_know_its_namespace_says_what_is_missing(bed: Bed, doomed: Doomed) -> None:
    await doomed.delete()
    engine = await bed.engine()
    engine.records.namespace = ""
    result = await engine.run(doomed.finalizes(), events)
    assert result.outcome is Outcome.NOT_STARTED
    assert "because it is being terminated" in result.message
    assert result.message.endswith("; set --leader-election-namespace, where finalizers can run then")


async def test_a_refusal_in_the_namespace_of_the_operator_is_the_reason(
    bed: Bed, doomed: Doomed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await doomed.delete()
    await bed.forbid(
        "count/jobs.batch", "/apis/batch/v1", "jobs", {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
    )
    engine = await bed.engine()
    result = await engine.run(doomed.finalizes(), events)
    assert result.outcome is Outcome.NOT_STARTED
    assert f"namespace {bed.namespace} of the operator" in result.message
    assert "exceeded quota: none" in result.message
    assert await bed.objects("secrets") == []
