"""Idle agents, and the pods in which they wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import orjson
import pytest
from structlog.testing import capture_logs

from runner.agent import uplink
from runner.agent.frames import PROTOCOL, Exit, Kind
from runner.core.engine.job import Job
from runner.core.engine.run_root import RunRoot
from runner.core.kube.client import Client as KubeClient
from runner.core.kube.discovery import ApiResource
from runner.engines.pod import jobs, warm
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.jobs import Address
from runner.engines.pod.links import Link
from runner.engines.pod.records import Records
from runner.engines.pod.states import Patience, PodState
from runner.engines.pod.warm import WarmPods, WarmTemplate
from runner.engines.pod.watching import PodWatch
from runner.values.errors import ApiUnavailableError, EngineError, ForbiddenError, NotFoundError, ServerError
from runner.values.objects import Object, ObjectKey
from tests.kit.agents import ORDER, RUN, TOKEN, Client, Operator, Pod, ending, receive_all
from tests.kit.wait import until

StartPod = Callable[..., Pod]
Connect = Callable[..., Awaitable[Client]]
WARM, IDLE_TOKEN = "warm-thing-1", "idle-token"


@pytest.fixture
def idle(operator: Operator) -> IdleLink:
    return operator.links.expect(WARM, IDLE_TOKEN, lambda: None)


@pytest.fixture
def settings(operator: Operator) -> Path:
    """The settings of an idle agent."""
    return operator.settings(token=IDLE_TOKEN, run=WARM, warm="{}")


async def test_an_idle_agent_gets_one_run_and_is_its_agent(
    operator: Operator, pod: StartPod, idle: IdleLink, settings: Path
) -> None:
    agent_ = pod(settings, output=b"one\ntwo\n")
    await until(lambda: idle.is_ready)
    link = operator.open()
    idle.assign(RUN, TOKEN)
    assert not idle.is_ready
    frames = await receive_all(link)
    assert [frame.payload for frame in frames[:-1]] == [b"one", b"two"]
    assert agent_.order.read_bytes() == ORDER
    with pytest.raises(ValueError, match="has a run already"):
        idle.assign("run-2", "token-2")
    assert await link.recorded(20)
    assert await agent_.keeping is Exit.DONE


async def test_an_idle_agent_with_a_long_problem_is_ready_too(pod: StartPod, idle: IdleLink, settings: Path) -> None:
    agent_ = pod(settings)
    agent_.uplink.problem = "\x1b" * 20_000
    await until(lambda: idle.is_ready)
    assert idle.problem.startswith("\x1b")


async def test_an_agent_whose_connection_was_lost_gets_its_run_when_it_returns(
    link: Link, pod: StartPod, idle: IdleLink, settings: Path
) -> None:
    idle.assign(RUN, TOKEN)
    pod(settings, output=b"one\n")
    assert len(await receive_all(link)) == 2


async def test_a_run_outlives_the_operator_that_gave_it_to_the_agent(
    operator: Operator, pod: StartPod, idle: IdleLink, settings: Path
) -> None:
    agent_ = pod(settings)
    await until(lambda: idle.is_ready)
    link = operator.open()
    idle.assign(RUN, TOKEN)
    await until(lambda: agent_.began)
    link.close()
    await operator.links.close()
    await operator.start()
    link = operator.open()
    agent_.spool.add(b"late\n")
    agent_.spool.end(ending())
    assert [frame.payload for frame in (await receive_all(link))[:-1]] == [b"late"]


async def test_the_token_of_an_idle_agent_obtains_no_second_run(
    operator: Operator, client: Connect, idle: IdleLink
) -> None:
    first = await client()
    first.hello(run=WARM, token=IDLE_TOKEN, has_order=False)
    assert (await first.receive())[0] == Kind.WELCOME
    idle.assign(RUN, TOKEN)
    kind, _, payload = await first.receive()
    assert (kind, orjson.loads(payload)) == (Kind.ASSIGN, {"run": RUN, "token": TOKEN})
    other = await client()
    other.hello(run=WARM, token=IDLE_TOKEN, agent="b")
    assert (await other.receive())[0] == Kind.REFUSED
    idle.close()
    later = await client()
    later.hello(run=WARM, token=IDLE_TOKEN)
    kind, _, payload = await later.receive()
    assert (kind, orjson.loads(payload)) == (Kind.REFUSED, {"reason": "the run is not here", "final": False})


async def test_an_idle_agent_with_another_protocol_is_told_so(client: Connect, idle: IdleLink) -> None:
    connected = await client()
    connected.hello(run=WARM, token=IDLE_TOKEN, protocol=99)
    kind, _, payload = await connected.receive()
    refusal = {"reason": f"protocol 99 is not supported, only {PROTOCOL}", "final": False}
    assert (kind, orjson.loads(payload)) == (Kind.REFUSED, refusal)
    assert not idle.is_connected


async def test_an_idle_agent_sends_no_frames(client: Connect, idle: IdleLink) -> None:
    connected = await client()
    connected.hello(run=WARM, token=IDLE_TOKEN)
    assert (await connected.receive())[0] == Kind.WELCOME
    connected.send(Kind.DATA, 1, b"line")
    await connected.rest()
    assert not idle.is_connected


async def test_an_agent_with_a_run_ignores_another_one(link: Link, pod: StartPod) -> None:
    agent_ = pod()
    await until(lambda: agent_.began)
    assert link._connection is not None
    link._connection.send(Kind.ASSIGN, payload=orjson.dumps({"run": "run-2", "token": "token-2"}))
    agent_.spool.end(ending())
    assert len(await receive_all(link)) == 1
    assert link.connects == 1


async def test_an_idle_agent_that_is_not_needed_ends(pod: StartPod, idle: IdleLink, settings: Path) -> None:
    agent_ = pod(settings)
    await until(lambda: idle.is_ready)
    idle.dismiss()
    assert await agent_.keeping is Exit.DONE


async def test_an_idle_agent_ends_soon_without_the_operator_that_started_it(
    operator: Operator, pod: StartPod, settings: Path, monkeypatch: pytest.MonkeyPatch, logged: dict[int, bytes]
) -> None:
    monkeypatch.setattr(uplink, "_IDLE_PATIENCE", 0.05)
    assert await pod(settings).keeping is Exit.DONE
    assert b"the operator that started this idle pod is gone" in logged[2]


@dataclass
class Cluster:
    """The API server and the nodes, as far as warm pods use them."""

    jobs: dict[str, Object] = field(default_factory=dict)
    secrets: dict[str, Object] = field(default_factory=dict)
    states: dict[str, PodState] = field(default_factory=dict)
    is_full: bool = False
    is_down: bool = False
    refused: str = ""

    async def refusal(self, job: ObjectKey) -> str:
        assert job.namespace == "system"
        return self.refused

    def is_known(self, namespace: str) -> bool:
        return namespace == "system"

    async def create(self, resource: ApiResource, namespace: str, obj: Object) -> Object:
        assert namespace == "system"
        self._check()
        if self.is_full:
            raise ForbiddenError("exceeded quota", status=403)
        created = {**obj, "metadata": {**obj["metadata"], "uid": f"uid-of-{obj['metadata']['name']}"}}
        (self.jobs if resource.plural == "jobs" else self.secrets)[obj["metadata"]["name"]] = created
        return created

    async def delete(self, resource: ApiResource, key: ObjectKey) -> Object:
        assert (resource.plural, key.namespace) == ("jobs", "system")
        self._check()
        if key.name not in self.jobs:
            raise NotFoundError("gone", status=404)
        self.states.pop(key.name, None)
        return self.jobs.pop(key.name)

    def _check(self) -> None:
        if self.is_down:
            raise ApiUnavailableError("the connection was refused")

    def state(self, job: ObjectKey) -> PodState | None:
        assert job.namespace == "system"
        return self.states.get(job.name)

    def starting_warm(self, kind: str) -> set[str]:
        assert kind == "Thing"
        return {name for name, state in self.states.items() if state.is_starting}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_LOOK", 0.01)
    monkeypatch.setattr(warm, "_FIRST_DELAY", 0.02)


@pytest.fixture
async def pool(operator: Operator, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WarmPods]:
    """Two warm pods."""
    address = Address(f"{operator.host}:{operator.port}", "operator.pods.test", operator.ca.decode(), b"key")
    records = Records(cast("KubeClient", cluster), lambda: address, "system", {})
    monkeypatch.setattr(records, "refusal", cluster.refusal)
    template = WarmTemplate("Thing", PodPolicy(1, {}, {"image": "ee:1"}, warm=2), {"env/envvars": "{}"})
    made = WarmPods(records, operator.links, cast("PodWatch", cluster), template, lambda: True)
    following = asyncio.create_task(made.follow())
    yield made
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def _idle_agent(operator: Operator, client: Connect, secret: Object, **fields: object) -> Client:
    """Connect with the settings of a Secret."""
    connected = await client()
    content = secret["stringData"]
    connected.hello(run=content["run"], token=content["token"], has_order=False, **fields)
    assert (await connected.receive())[0] == Kind.WELCOME
    return connected


async def test_the_reason_why_a_pod_is_refused_is_in_the_log(
    cluster: Cluster, pool: WarmPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_REFUSED_AFTER", 0.05)
    cluster.refused = "violates PodSecurity restricted: runAsNonRoot != true"
    with capture_logs() as logs:
        await until(lambda: pool.failures >= 2)
    problems = [line["problem"] for line in logs if "A warm pod did not start" in line["event"]]
    assert problems[0] == f"the pod cannot be created: {cluster.refused}"
    cluster.refused = ""
    await until(lambda: len(cluster.secrets) > 2)


async def test_a_pool_keeps_its_number_of_pods_and_replaces_one_that_got_a_run(
    operator: Operator, cluster: Cluster, pool: WarmPods, client: Connect
) -> None:
    await until(lambda: len(cluster.secrets) == 2)
    assert (pool.take(), pool.misses) == (None, 1)
    name, secret = next(iter(cluster.secrets.items()))
    assert secret["metadata"]["ownerReferences"][0]["uid"] == f"uid-of-{name}"
    assert orjson.loads(secret["stringData"]["warm"]) == {"env/envvars": "{}"}
    await _idle_agent(operator, client, secret)
    taken = pool.take()
    assert taken is not None
    assert (taken.name, pool.hits) == (name, 1)
    await until(lambda: len(cluster.secrets) == 3)
    assert name in cluster.jobs


async def test_no_run_gets_a_pod_that_is_about_to_be_lost(
    operator: Operator, cluster: Cluster, pool: WarmPods, client: Connect
) -> None:
    await until(lambda: cluster.secrets)
    name, secret = next(iter(cluster.secrets.items()))
    await _idle_agent(operator, client, secret)
    cluster.states[name] = PodState(name, node="a", lost="it is being deleted")
    assert (pool.take(), pool.misses) == (None, 1)
    cluster.states[name] = PodState(name, node="a")
    assert pool.take() is not None


async def test_a_pod_that_was_given_back_serves_another_run(
    operator: Operator, cluster: Cluster, pool: WarmPods, client: Connect
) -> None:
    await until(lambda: cluster.secrets)
    await _idle_agent(operator, client, next(iter(cluster.secrets.values())))
    taken = pool.take()
    assert taken is not None
    pool.give_back(taken)
    assert (pool.take(), pool.hits, pool.misses) == (taken, 1, 0)


@pytest.mark.parametrize(
    ("error", "is_free"),
    [
        (ApiUnavailableError("the response was lost"), False),
        (ServerError("timed out", status=504), False),
        (asyncio.CancelledError(), False),
        (EngineError("the Secret was refused"), True),
    ],
)
async def test_a_pod_that_the_secret_of_a_run_may_name_serves_no_other_run(
    operator: Operator,
    cluster: Cluster,
    pool: WarmPods,
    client: Connect,
    make_job: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    *,
    is_free: bool,
) -> None:
    async def create(*_: object) -> tuple[str, str]:
        raise error

    await until(lambda: cluster.secrets)
    name, secret = next(iter(cluster.secrets.items()))
    await _idle_agent(operator, client, secret)
    monkeypatch.setattr(pool._records, "create", create)
    pods, root = cast("PodWatch", cluster), cast("RunRoot", SimpleNamespace(kept=None))
    engine = PodEngine(cast("KubeClient", cluster), operator.links, pods, pool._records, root, lambda _: None)
    job = make_job()
    engine.warm[job.gvk] = pool
    with pytest.raises(type(error)):
        await engine._new(job)
    assert (pool.take() is not None) is is_free
    assert name in cluster.jobs


async def test_a_pod_that_cannot_start_is_replaced_ever_less_often_and_reported(
    cluster: Cluster, pool: WarmPods, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm, "_PATIENCE", Patience(broken=0.0))
    delays: list[float] = []
    monkeypatch.setattr(warm._log, "warning", lambda _, **fields: delays.append(fields["seconds"]))
    seen: set[str] = set()

    def break_all() -> bool:
        for name in cluster.jobs:
            cluster.states[name] = PodState(name, broken="its image cannot be pulled")
        seen.update(cluster.jobs)
        return len(delays) >= 4

    await until(break_all)
    assert delays[:4] == sorted(delays[:4])
    assert delays[3] > delays[0]
    assert pool.failures >= 4


async def test_a_pod_whose_node_is_lost_is_replaced(
    operator: Operator, cluster: Cluster, pool: WarmPods, client: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_PATIENCE", Patience(gone=0.0))
    await until(lambda: len(cluster.secrets) == 2)
    name = next(iter(cluster.secrets))
    cluster.states[name] = PodState(name, node="a")
    agent_ = await _idle_agent(operator, client, cluster.secrets[name])
    await asyncio.sleep(0.05)  # it is not replaced while its agent is connected
    assert name in cluster.jobs
    del cluster.states[name]
    agent_.close()
    await until(lambda: len(cluster.secrets) == 3 and name not in cluster.jobs)


@pytest.mark.parametrize("problem", ["is_full", "is_down"])
async def test_objects_that_cannot_be_created_are_tried_again(cluster: Cluster, pool: WarmPods, problem: str) -> None:
    await until(lambda: len(cluster.jobs) == 2)
    first = set(cluster.jobs)
    setattr(cluster, problem, True)
    for name in first:
        pool._drop(pool._waiting[name])
    await until(lambda: pool.failures >= 2)
    setattr(cluster, problem, False)
    await until(lambda: len(cluster.jobs) == 2 and not first & set(cluster.jobs))


async def test_a_pod_of_an_earlier_operator_that_never_starts_is_deleted(
    cluster: Cluster, pool: WarmPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_PATIENCE", Patience(start=0.05))
    cluster.jobs["warm-thing-left"] = {}
    cluster.states["warm-thing-left"] = PodState("warm-thing-left", waits="it cannot be scheduled")
    await until(lambda: "warm-thing-left" not in cluster.jobs)


async def test_a_closed_pool_ends_its_agents_and_deletes_their_pods(
    operator: Operator, cluster: Cluster, pool: WarmPods, client: Connect
) -> None:
    await until(lambda: len(cluster.secrets) == 2)
    connected = await _idle_agent(operator, client, next(iter(cluster.secrets.values())))
    await pool.close()
    assert cluster.jobs == {}
    kind, _, payload = await connected.receive()
    assert (kind, orjson.loads(payload)["final"]) == (Kind.REFUSED, True)


def test_the_token_of_a_warm_pod_is_known_to_the_next_operator_only_with_the_key() -> None:
    first = jobs.warm_token(Address("", "", "", b"key"), "warm-a")
    assert first == jobs.warm_token(Address("other", "", "", b"key"), "warm-a")
    assert (
        len({first, *(jobs.warm_token(Address("", "", "", key), n) for key, n in ((b"k", "warm-a"), (b"key", "b")))})
        == 3
    )


async def test_ended_pods_whose_resource_is_gone_are_deleted_even_after_a_refusal(
    cluster: Cluster, pool: WarmPods
) -> None:
    await until(lambda: len(cluster.jobs) == 2)
    cluster.jobs["warm-thing-ended"] = {}
    cluster.is_down = True
    pool.orphans = lambda: ["warm-thing-ended"] if "warm-thing-ended" in cluster.jobs else []
    await until(lambda: "warm-thing-ended" in pool._doomed)
    cluster.is_down = False
    await until(lambda: "warm-thing-ended" not in cluster.jobs)
    await until(lambda: not pool._doomed)
    assert len(cluster.jobs) == 2
