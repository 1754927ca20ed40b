"""Runs in warm pods: which agent gets a run, whichever operator is there, and which objects remain."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import orjson

from runner.agent.frames import Kind
from runner.core.engine.job import Outcome
from runner.core.kube.client import PatchType
from runner.core.kube.discovery import Discovery
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.jobs import JOBS, PODS, RUN, RUN_OF, WARM
from runner.engines.pod.states import Patience, PodState
from runner.engines.pod.warm import WarmPods, WarmTemplate
from runner.engines.pod.watching import PodWatch
from runner.values.objects import GVK, Object, ObjectKey, metadata
from tests.engines.pod.integration.bed import Agent, Bed, Pods, conclude, detach, events, succeed
from tests.kit.agents import Client as AgentClient
from tests.kit.wait import until

UNSCHEDULABLE = {"containers": [{"name": "ansible", "image": "ee:1"}], "nodeSelector": {"no": "node"}}
POLICY = PodPolicy(1, {}, {"image": "example.com/ee:1"}, warm=1)


@asynccontextmanager
async def warm_pods(bed: Bed, engine: PodEngine, policy: PodPolicy = POLICY) -> AsyncIterator[WarmPods]:
    """Keep one warm pod for an engine."""
    template = WarmTemplate(bed.owner.gvk.kind, policy, {})
    pods = WarmPods(engine.records, engine._links, cast("PodWatch", bed.pods), template, lambda: True)
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
    secrets = await until(lambda: listed(bed, "secrets"), "a warm pod")
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
        assert set(secret["data"]) == {"sealed-token"}
        agent.succeed()
        result = await conclude(engine, job, running, agent)
        assert (result.outcome, result.pod) == (Outcome.SUCCEEDED, f"{bed.namespace}/{name}-x on n1")

        async def two_jobs() -> dict[str, Object]:
            return jobs if len(jobs := await listed(bed, "jobs")) >= 2 else {}

        jobs = await until(two_jobs, "the next warm pod")
        assert name in jobs
        assert metadata(jobs[name])["labels"][WARM] == bed.owner.gvk.kind
        assert (pods.hits, pods.misses) == (1, 0)
    assert await bed.objects("secrets") == []


async def test_without_a_ready_agent_a_run_gets_a_pod_of_its_own(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    async with warm_pods(bed, engine) as pods:
        running = asyncio.create_task(engine.run(job, events))
        agent = await bed.agent(await bed.record())
        await succeed(engine, job, running, agent)
        assert (pods.hits, pods.misses) == (0, 1)


async def test_the_next_operator_continues_a_run_although_its_idle_agent_has_not_got_it(bed: Bed) -> None:
    first = await bed.engine()
    async with warm_pods(bed, first) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        running = asyncio.create_task(first.run(bed.job(), events))
        await until(lambda: bed.objects("secrets"), "the record of the run")
        await until(lambda: name not in pods._waiting)
        await detach(first, running)
    idle.close()
    second = await bed.engine()
    found = await bed.resumed(second)
    assert found.record.warm == name
    job = bed.job(None, found)
    running = asyncio.create_task(second.run(job, events))
    await until(lambda: name in second._links._runs)
    idle, _ = await idle_agent(bed, name)
    agent = await assigned(bed, idle)
    await succeed(second, job, running, agent)


async def test_a_run_whose_idle_agent_does_not_respond_is_repeated(bed: Bed) -> None:
    engine, job = await bed.engine(), bed.job()
    engine._shared.patience = Patience(assigned=0.2)
    async with warm_pods(bed, engine) as pods:
        idle, name = await idle_agent(bed)
        await until(lambda: pods._waiting[name].link.is_ready)
        result = await conclude(engine, job)
        assert (result.outcome, result.message) == (
            Outcome.CANCELED,
            "The pod of the run was lost: the agent of its warm pod did not respond.",
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
        await detach(first, running)
    agent.client.close()
    second = await bed.engine()
    assert await second.resume(bed.owner, 2, "apply") is None
    assert name not in await listed(bed, "jobs")
    assert await bed.objects("secrets") == []


async def test_few_ended_warm_pods_of_a_resource_remain(bed: Bed) -> None:
    engine = await bed.engine()
    async with warm_pods(bed, engine) as pods:
        names: list[str] = []

        async def new_ones() -> list[str]:
            return [name for name in await listed(bed, "secrets") if name not in names]

        async def left_without_first() -> dict[str, Object]:
            return {} if names[0] in (left := await listed(bed, "jobs")) else left

        for _ in range(4):
            fresh = await until(new_ones, "a new warm pod")
            idle, name = await idle_agent(bed, fresh[0])
            names.append(name)
            await until(lambda name=name: pods._waiting[name].link.is_ready)  # type: ignore[misc]
            job = bed.job()
            running = asyncio.create_task(engine.run(job, events))
            agent = await assigned(bed, idle)
            await succeed(engine, job, running, agent)
            await until(lambda: not engine._labeling)  # it looks at the pods that have ended before
            bed.pods.ended.append(name)
        assert set(names[1:]) <= set(await until(left_without_first, "the end of the first Job"))


async def pod_of_job(bed: Bed, namespace: str, name: str) -> ObjectKey:
    """Create the Job of a warm pod that no node accepts; return its pod."""
    labels = {RUN: name, WARM: "Thing"}
    spec = {**UNSCHEDULABLE, "restartPolicy": "Never"}
    job = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": spec}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}
    await bed.client.request("POST", JOBS.path(namespace), body=body)

    async def pods() -> list[Object]:
        answer = await bed.client.request("GET", PODS.path(namespace), params={"labelSelector": f"{RUN}={name}"})
        return list(answer["items"])

    return ObjectKey(namespace, (await until(pods, "the pod of the Job"))[0]["metadata"]["name"])


class RealPods(PodWatch):
    """States of pods as the API server has them."""

    @property
    def states(self) -> dict[str, PodState]:
        """What helpers set for other tests; unused."""
        return {}


@asynccontextmanager
async def watching(bed: Bed, *others: str) -> AsyncIterator[PodWatch]:
    """Watch pods in the operator's namespace and in others."""
    watch = RealPods(bed.client, Discovery(bed.client), [bed.namespace, *others], bed.namespace)
    following = asyncio.create_task(watch.follow())
    yield watch
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def write(bed: Bed, pod: ObjectKey, labels: dict[str, str], phase: str = "") -> None:
    """Write labels and the phase of a pod, as operator and kubelet do."""
    await bed.client.patch(PODS, pod, {"metadata": {"labels": labels}}, content_type=PatchType.MERGE)
    if phase:
        status = {"status": {"phase": phase}}
        await bed.client.patch(PODS, pod, status, content_type=PatchType.MERGE, subresource="status")


async def test_a_watch_of_pods_counts_idle_ones_until_they_have_a_run(bed: Bed) -> None:
    async with watching(bed) as watch:
        pod = await pod_of_job(bed, bed.namespace, "warm-x")
        await until(lambda: watch.starting_warm("Thing") == {"warm-x"})
        await write(bed, pod, {}, "Running")
        await until(lambda: watch.starting_warm("Thing") == set())
        assert watch.phases()["idle"] >= 1
        await write(bed, pod, {RUN_OF: "uid"})
        await until(lambda: "warm-x" in str(watch.state(ObjectKey(bed.namespace, "warm-x"))))
        assert watch.ended_warm("uid") == []
        await write(bed, pod, {}, "Succeeded")
        await until(lambda: watch.ended_warm("uid") == ["warm-x"])


async def test_pods_of_a_tenant_with_the_labels_of_a_run_change_nothing(bed: Bed) -> None:
    """Neither in the namespace of the tenant nor, without the Job as their controller, in that of the operator."""
    tenant = f"{bed.namespace}-tenant"
    await bed.client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": tenant}})
    async with watching(bed, tenant) as watch:
        job = ObjectKey(bed.namespace, "warm-x")
        ours = await pod_of_job(bed, bed.namespace, "warm-x")
        await write(bed, ours, {RUN_OF: "uid"}, "Running")
        await until(lambda: watch.state(job) == PodState(ours.name))
        theirs = await pod_of_job(bed, tenant, "warm-x")
        await write(bed, theirs, {RUN_OF: "uid"}, "Failed")
        await until(lambda: (state := watch.state(ObjectKey(tenant, "warm-x"))) is not None and bool(state.ended))
        meta = {"name": "forged", "labels": {RUN: "warm-x", WARM: "Thing", RUN_OF: "uid"}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": UNSCHEDULABLE}
        await bed.client.request("POST", PODS.path(bed.namespace), body=body)
        await write(bed, ObjectKey(bed.namespace, "forged"), {}, "Failed")
        marked = await pod_of_job(bed, bed.namespace, "warm-later")  # its event follows those of the others
        await until(lambda: watch.state(ObjectKey(bed.namespace, "warm-later")) is not None)
        assert marked.namespace == bed.namespace
        assert watch.state(job) == PodState(ours.name)
        assert watch.ended_warm("uid") == []
        await bed.client.delete(PODS, ObjectKey(bed.namespace, "forged"))
        await bed.client.request("DELETE", f"/api/v1/namespaces/{tenant}")
        await until(lambda: watch.state(ObjectKey(tenant, "warm-x")) is None)
        assert watch.state(job) == PodState(ours.name)


async def test_the_ended_warm_pod_of_a_run_goes_with_its_resource(bed: Bed) -> None:
    async with watching(bed) as watch:
        bed.pods = cast("Pods", watch)
        engine, job = await bed.engine(), bed.job()
        policy = replace(POLICY, pod={"nodeSelector": UNSCHEDULABLE["nodeSelector"]})  # no node ends it
        async with warm_pods(bed, engine, policy) as pods:
            idle, name = await idle_agent(bed)
            await until(lambda: pods._waiting[name].link.is_ready)
            place = ObjectKey(bed.namespace, name)
            await until(lambda: watch.state(place) is not None)
            running = asyncio.create_task(engine.run(job, events))
            agent = await assigned(bed, idle)
            await succeed(engine, job, running, agent)
            state = watch.state(place)
            assert state is not None
            await write(bed, ObjectKey(bed.namespace, state.name), {}, "Succeeded")
            gone: set[tuple[ObjectKey, str]] = set()
            asked: list[tuple[ObjectKey, str]] = []

            def is_gone(key: ObjectKey, uid: str) -> bool:
                asked.append((key, uid))
                return (key, uid) in gone

            await engine.sweep(bed.owner.gvk, is_gone, finalizes=True)
            await until(lambda: (bed.owner.key, bed.owner.uid) in asked)
            assert name in await listed(bed, "jobs")  # its resource exists
            assert list(watch.ended_warm_of(GVK("other", "v1", bed.owner.gvk.kind))) == []
            gone.add((bed.owner.key, bed.owner.uid))

            async def is_deleted() -> bool:
                """The Job by the operator, its Secret by the garbage collector, which at times takes half a minute."""
                return name not in (*await listed(bed, "jobs"), *await listed(bed, "secrets"))

            await until(is_deleted, f"{name} to be deleted")
