"""Runs in warm pods: which agent gets a run, whichever operator is there, and which objects remain."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import orjson
import pytest

from runner.engine.job import Outcome
from runner.errors import RunDetachedError
from runner.kube.client import PatchType
from runner.kube.discovery import Discovery
from runner.objects import Object, ObjectKey, metadata
from runner.pods.agent import Kind
from runner.pods.engine import PodEngine
from runner.pods.jobs import PODS, RUN_OF, WARM
from runner.pods.states import Patience, PodState
from runner.pods.warm import Home, WarmPods, WarmTemplate
from runner.pods.watching import PodWatch
from runner.watches.pod_fields import PodPolicy
from tests.integration.pods.conftest import Agent, Bed, conclude, events
from tests.unit.pods.conftest import Client as AgentClient
from tests.unit.pods.conftest import until

POLICY = PodPolicy(1, {}, {"image": "example.com/ee:1"}, warm=1)


@asynccontextmanager
async def warm_pods(bed: Bed, engine: PodEngine) -> AsyncIterator[WarmPods]:
    """Keep one warm pod for an engine."""
    home = Home(bed.namespace, engine._address, [], lambda: True)
    pods = WarmPods(
        bed.client, engine._links, cast("PodWatch", bed.pods), home, WarmTemplate(bed.owner.gvk.kind, POLICY, {})
    )
    engine.warm[bed.owner.gvk] = pods
    following = asyncio.create_task(pods.follow())
    yield pods
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def listed(bed: Bed, kind: str) -> dict[str, Object]:
    """Jobs or Secrets of warm pods by name, without those that are being deleted."""
    base = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
    answer = await bed.client.request("GET", f"{base}/namespaces/{bed.namespace}/{kind}")
    items = (each for each in answer["items"] if "deletionTimestamp" not in metadata(each))
    return {name: each for each in items if (name := str(metadata(each)["name"])).startswith("warm-")}


async def idle_agent(bed: Bed, name: str = "") -> tuple[AgentClient, str]:
    """Connect as the agent of a warm pod; return its connection and its name."""
    async with asyncio.timeout(30):
        while not (secrets := await listed(bed, "secrets")):
            await asyncio.sleep(0.02)
    name = name or next(iter(secrets))
    bed.pods.states[name] = PodState(f"{name}-x", "n1")
    token = base64.b64decode(secrets[name]["data"]["token"]).decode()
    client = await AgentClient.connect(bed.operators[-1])
    client.hello(run=name, token=token, has_order=False)
    assert (await client.receive())[0] == Kind.WELCOME
    return client, name


async def assigned(bed: Bed, idle: AgentClient) -> Agent:
    """Wait for the run of an idle agent, and connect as the agent of the run."""
    kind, _, payload = await idle.receive()
    assert kind == Kind.ASSIGN
    idle.close()
    run: dict[str, Any] = orjson.loads(payload)
    agent = Agent(await AgentClient.connect(bed.operators[-1]), bed.pods, run["run"])
    agent.client.hello(run=run["run"], token=run["token"], has_order=False)
    assert (await agent.client.receive())[0] == Kind.WELCOME
    await agent.take_order()
    return agent


async def test_a_run_gets_a_warm_pod_that_is_replaced_and_leaves_no_record(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    async with warm_pods(bed, engine) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        running = asyncio.create_task(engine.run(job, events))
        agent = await assigned(bed, idle)
        assert await bed.objects("jobs") == []
        (secret,) = await bed.objects("secrets")
        assert set(secret["data"]) == {"token"}
        agent.succeed()
        leaving = asyncio.create_task(agent.leave())
        result = await conclude(engine, job, running)
        assert (result.outcome, result.pod) == (Outcome.SUCCEEDED, f"{bed.namespace}/{name}-x on n1")
        await leaving
        async with asyncio.timeout(30):
            while len(jobs := await listed(bed, "jobs")) < 2:
                await asyncio.sleep(0.02)
        assert name in jobs
        assert metadata(jobs[name])["labels"][WARM] == bed.owner.gvk.kind
        assert (pods.hits, pods.misses) == (1, 0)
    assert await bed.objects("secrets") == []


async def test_without_a_ready_agent_a_run_gets_a_pod_of_its_own(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    async with warm_pods(bed, engine) as pods:
        running = asyncio.create_task(engine.run(job, events))
        agent = await bed.agent(await bed.record())
        agent.succeed()
        leaving = asyncio.create_task(agent.leave())
        assert (await conclude(engine, job, running)).outcome is Outcome.SUCCEEDED
        await leaving
        assert (pods.hits, pods.misses) == (0, 1)


async def test_the_next_operator_continues_a_run_although_its_idle_agent_has_not_got_it(bed: Bed) -> None:
    first = await bed.engine()
    async with warm_pods(bed, first) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        running = asyncio.create_task(first.run(bed.job(), events))
        async with asyncio.timeout(30):
            while not await bed.objects("secrets"):
                await asyncio.sleep(0.02)
        await until(lambda: name not in pods._waiting)
        await first.close(0)
        with pytest.raises(RunDetachedError):
            await running
    idle.close()
    second = await bed.engine()
    found = await second.resume(bed.owner, 1, "apply")
    assert found is not None
    assert found.record.warm == name
    job = bed.job(None, found)
    running = asyncio.create_task(second.run(job, events))
    await until(lambda: name in second._links._runs)
    idle, _ = await idle_agent(bed, name)
    agent = await assigned(bed, idle)
    agent.succeed()
    leaving = asyncio.create_task(agent.leave())
    assert (await conclude(second, job, running)).outcome is Outcome.SUCCEEDED
    await leaving


async def test_a_run_whose_idle_agent_does_not_respond_is_repeated(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    engine._patience = Patience(assigned=0.2)
    async with warm_pods(bed, engine) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        result = await conclude(engine, job, asyncio.create_task(engine.run(job, events)))
        assert (result.outcome, result.message) == (
            Outcome.CANCELED,
            "The pod of the run was lost: the agent of its warm pod did not respond. The run is repeated.",
        )
        assert name not in await listed(bed, "jobs")
        assert await bed.objects("secrets") == []
    idle.close()


async def test_a_change_ends_the_run_of_a_warm_pod_that_an_earlier_operator_began(bed: Bed) -> None:
    first = await bed.engine()
    async with warm_pods(bed, first) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        running = asyncio.create_task(first.run(bed.job(), events))
        agent = await assigned(bed, idle)
        await first.close(0)
        with pytest.raises(RunDetachedError):
            await running
    agent.client.close()
    second = await bed.engine()
    assert await second.resume(bed.owner, 2, "apply") is None
    assert name not in await listed(bed, "jobs")
    assert await bed.objects("secrets") == []


async def test_few_ended_warm_pods_of_a_resource_remain(bed: Bed) -> None:
    engine = await bed.engine()
    async with warm_pods(bed, engine) as pods:
        names: list[str] = []
        for _ in range(4):
            async with asyncio.timeout(30):
                while not (fresh := [name for name in await listed(bed, "secrets") if name not in names]):
                    await asyncio.sleep(0.02)
            idle, name = await idle_agent(bed, fresh[0])
            names.append(name)
            await until(lambda name=name: pods._waiting[name].link.is_ready)  # type: ignore[misc]
            job = bed.job()
            running = asyncio.create_task(engine.run(job, events))
            agent = await assigned(bed, idle)
            agent.succeed()
            leaving = asyncio.create_task(agent.leave())
            await conclude(engine, job, running)
            await leaving
            bed.pods.ended.append(name)
        async with asyncio.timeout(30):
            while names[0] in (left := await listed(bed, "jobs")):
                await asyncio.sleep(0.02)
        assert set(names[1:]) <= set(left)


async def test_a_watch_of_pods_counts_idle_ones_until_they_have_a_run(bed: Bed) -> None:
    watch = PodWatch(bed.client, Discovery(bed.client), [bed.namespace])
    following = asyncio.create_task(watch.follow())
    meta = {"name": "warm-x-1", "labels": {"ansible.sdk.operatorframework.io/run": "warm-x", WARM: "Thing"}}
    body = {"metadata": meta, "spec": {"containers": [{"name": "ansible", "image": "ee:1"}]}}
    await bed.client.request("POST", PODS.path(bed.namespace), body={"apiVersion": "v1", "kind": "Pod", **body})
    await until(lambda: watch.state("warm-x") is not None)
    key = ObjectKey(bed.namespace, "warm-x-1")
    running = {"status": {"phase": "Running"}}
    await bed.client.patch(PODS, key, running, content_type=PatchType.MERGE, subresource="status")
    await until(lambda: watch.phases()["idle"] == 1)
    assert watch.starting_warm("Thing") == set()
    labeled = {"metadata": {"labels": {RUN_OF: "uid"}}}
    await bed.client.patch(PODS, key, labeled, content_type=PatchType.MERGE)
    await until(lambda: watch.phases()["running"] == 1)
    assert watch.ended_warm("uid") == []
    ended = {"status": {"phase": "Succeeded"}}
    await bed.client.patch(PODS, key, ended, content_type=PatchType.MERGE, subresource="status")
    await until(lambda: watch.ended_warm("uid") == ["warm-x"])
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
