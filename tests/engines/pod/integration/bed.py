"""The engine of runs in pods with a real API server. A test is the node: it sets the states of pods, and is the agent.

On a real node, the same is tested in tests/integration/image.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from runner.agent.frames import HEADER, Kind
from runner.app.features import CALLBACKS
from runner.core.engine.job import Event, Job, Outcome, RunResult, UnrecordedRun
from runner.core.engine.run_root import RunRoot
from runner.core.kube.client import Client
from runner.core.watches.watch import Playbook
from runner.engines.pod.certificates import Certificates
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.jobs import AGENT, RUN_OF, Address, RecordedRun, run_number
from runner.engines.pod.records import Records
from runner.engines.pod.states import PodState
from runner.engines.pod.watching import PodWatch
from runner.values.errors import ForbiddenError, RunDetachedError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.kit.agents import NAME, Operator, ending
from tests.kit.agents import Client as AgentClient
from tests.kit.jobs import job_value
from tests.kit.wait import patience, until

PLAY = "- {hosts: localhost, gather_facts: false, tasks: []}\n"
POD: Object = {"containers": [{"name": "ansible", "image": "example.com/ee:1"}]}
_PATHS = {"jobs": "/apis/batch/v1", "secrets": "/api/v1"}


class Pods:
    """States of pods, which only a node has."""

    def __init__(self) -> None:
        self.states: dict[str, PodState] = {}
        self.ended: list[str] = []
        """Warm pods that have ended after a run of the resource."""

    def state(self, job: ObjectKey) -> PodState | None:
        return self.states.get(job.name)

    def is_known(self, namespace: str) -> bool:  # noqa: ARG002 - the signature of PodWatch
        return True

    def starting_warm(self, kind: str) -> set[str]:  # noqa: ARG002 - the signature of PodWatch
        return set()

    def ended_warm_of(self, gvk: GVK) -> list[tuple[str, ObjectKey, str]]:  # noqa: ARG002 - as above
        return []

    def ended_warm(self, uid: str) -> list[str]:  # noqa: ARG002 - the signature of PodWatch
        return self.ended


@dataclass
class Bed:
    """An engine, and the custom resource of its runs."""

    client: Client
    namespace: str
    folder: Path
    certificates: Certificates
    owner: ObjectRef
    pods: Pods = field(default_factory=Pods)
    operators: list[Operator] = field(default_factory=list)
    metrics: Callable[[], asyncio.Protocol] = asyncio.Protocol

    async def engine(self) -> PodEngine:
        """Start another operator. Its run folders are its own."""
        operator = Operator(
            self.folder, self.certificates.context, self.certificates.authority.encode(), metrics=self.metrics
        )
        await operator.start()
        self.operators.append(operator)

        def address() -> Address:
            server = f"{operator.host}:{operator.port}"
            return Address(server, NAME, self.certificates.authority, self.certificates.key)

        root = RunRoot(self.runner_dir, callbacks=CALLBACKS)
        watch = cast("PodWatch", self.pods)
        policies = {self.owner.gvk: PodPolicy(1, {}, {"image": "example.com/ee:1"})}
        records = Records(self.client, address, self.namespace, policies)
        return PodEngine(self.client, operator.links, watch, records, root, lambda _: None)

    @property
    def runner_dir(self) -> Path:
        return self.folder / f"runs-{len(self.operators)}"

    def job(self, deadline: float | None = None, resumed: UnrecordedRun | None = None, **changes: Any) -> Job:
        playbook = self.folder / "play.yml"
        playbook.write_text(changes.pop("play", PLAY))
        ident = resumed.ident if resumed is not None else str(time.time_ns())
        token = resumed.token if resumed is not None else f"token-{ident}"
        fields: dict[str, Any] = {
            "ident": ident,
            "gvk": self.owner.gvk,
            "key": self.owner.key,
            "content": Playbook(playbook),
            "run_dir": self.runner_dir / "one",
            "kubeconfig": "",
            "deadline": deadline,
            "uid": self.owner.uid,
            "generation": 1,
            "token": token,
            "resumed": resumed,
        }
        return job_value(**{**fields, **changes})

    async def objects(self, kind: str) -> list[Object]:
        """The Jobs or Secrets of the resource's runs, oldest first."""
        path = f"{_PATHS[kind]}/namespaces/{self.namespace}/{kind}"
        answer = await self.client.request("GET", path, params={"labelSelector": f"{RUN_OF}={self.owner.uid}"})
        items: list[Object] = answer["items"]
        return sorted(items, key=lambda each: int(each["metadata"]["name"].rpartition("-")[2]))

    async def left(self, kind: str) -> list[Object]:
        """Those that are not being deleted."""
        return [each for each in await self.objects(kind) if "deletionTimestamp" not in each["metadata"]]

    async def resumed(self, engine: PodEngine, purpose: str = "apply") -> RecordedRun:
        """The run that an operator finds after its start."""
        found = await engine.resume(self.owner, 1, purpose)
        assert found is not None
        return found

    async def another_owner(self, name: str) -> None:
        """Create another custom resource, which further runs have."""
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        made = await self.client.request("POST", path, body={"metadata": {"name": name}})
        self.owner = ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(self.namespace, name), made["metadata"]["uid"])

    async def forbid(self, what: str, group: str, plural: str, spec: Object, namespace: str = "") -> str:
        """Forbid objects by a quota, such as `pods`; return its path once an object with this spec is refused.

        The API server itself learns of a quota, and of the account of a new namespace, a little later.
        """
        space = f"namespaces/{namespace or self.namespace}"
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {what: "0"}}}
        await self.client.request("POST", f"/api/v1/{space}/resourcequotas", body=quota)
        body, params = {"metadata": {"name": "any"}, "spec": spec}, {"dryRun": "All"}

        async def is_refused() -> bool:
            try:
                await self.client.request("POST", f"{group}/{space}/{plural}", params=params, body=body)
            except ForbiddenError as error:
                return "exceeded quota" in str(error)
            return False

        await until(is_refused, f"the quota of {what} to count")
        return f"/api/v1/{space}/resourcequotas/none"

    async def record(self, number: int = 1, *, newest: bool = False) -> dict[str, str]:
        """What the pod of the run with this number gets, when it is there; or the pod of the newest run."""

        async def found() -> dict[str, str] | None:
            jobs = [run_number(each["metadata"]["name"]) for each in await self.objects("jobs")]
            secrets = {run_number(each["metadata"]["name"]): each for each in await self.objects("secrets")}
            wanted = max(secrets, default=0) if newest else number
            if wanted not in secrets or wanted not in jobs:
                return None
            data = secrets[wanted]["data"]
            return {name: base64.b64decode(value).decode() for name, value in data.items() if name != AGENT}

        record: dict[str, str] = await until(found, "the Job and the Secret of a run")
        return record

    async def agent(self, record: dict[str, str], last: int = 0) -> Agent:
        """Connect as the agent of a run. Its pod runs from now on. One that has sent lines gets no order."""
        self.pods.states[record["run"]] = PodState(f"{record['run']}-x", "n1")

        async def welcome() -> Agent | None:
            agent = Agent(await AgentClient.connect(self.operators[-1]), self.pods, record["run"])
            agent.client.hello(run=record["run"], token=record["token"], has_order=False, last=last)
            return agent if (await agent.client.receive())[0] == Kind.WELCOME else None

        agent: Agent = await until(welcome, "the operator to welcome the agent")
        if not last:
            await agent.take_order()
        return agent


@dataclass
class Agent:
    """The agent of a run, whose worker is the test."""

    client: AgentClient
    pods: Pods
    run: str
    number: int = 0
    is_stopped: bool = False

    async def take_order(self) -> None:
        """Receive the order, or a request to stop in place of it."""
        payload = b"-"
        while payload and not self.is_stopped:
            kind, _, payload = await self.client.receive()
            self.is_stopped = kind == Kind.STOP

    async def stopped(self) -> None:
        """Wait for a request to stop."""
        while not self.is_stopped:
            self.is_stopped = (await self.client.receive())[0] == Kind.STOP

    def line(self, **value: object) -> None:
        self.raw(orjson.dumps(value))

    def raw(self, line: bytes) -> None:
        self.number += 1
        self.client.send(Kind.DATA, self.number, line)

    def succeed(self) -> None:
        """Report a run that ended."""
        self.line(status="successful")
        self.end()

    def end(self, code: int | None = 0, **fields: object) -> None:
        self.number += 1
        self.client.send(Kind.END, self.number, ending(code, **fields))

    async def leave(self) -> None:
        """End as soon as the outcome is recorded."""
        header = b""
        while not header or HEADER.unpack(header)[0] != Kind.RECORDED:
            header = await self.client.reader.readexactly(HEADER.size)
            await self.client.reader.readexactly(HEADER.unpack(header)[2])
        self.client.writer.close()


def events(_: Event) -> None:
    """Receive what the run prints."""


async def begin(
    bed: Bed, engine: PodEngine | None = None, job: Job | None = None
) -> tuple[PodEngine, Job, asyncio.Task[RunResult], Agent]:
    """Begin a run whose pod runs, by default the first one of another operator."""
    engine, job = engine or await bed.engine(), job or bed.job()
    running = asyncio.create_task(engine.run(job, events))
    return engine, job, running, await bed.agent(await bed.record(newest=True))


async def conclude(
    engine: PodEngine, job: Job, running: asyncio.Task[RunResult] | None = None, agent: Agent | None = None
) -> RunResult:
    """Wait for a run, which is begun if it is not `running`, and record its outcome as the controller does.

    `agent`: has reported the end of the run, and leaves now.
    """
    leaving = asyncio.create_task(agent.leave()) if agent is not None else None
    async with asyncio.timeout(patience()):
        result = await (running or engine.run(job, events))
    await engine.recorded(job)
    if leaving is not None:
        await leaving
    return result


async def detach(engine: PodEngine, running: asyncio.Task[RunResult]) -> None:
    """Stop an operator, whose run continues in its pod."""
    await engine.close(0)
    with pytest.raises(RunDetachedError):
        await running


async def succeed(engine: PodEngine, job: Job, running: asyncio.Task[RunResult], agent: Agent) -> RunResult:
    """Let the agent report a success, record the outcome, and wait until the agent has left."""
    agent.succeed()
    result = await conclude(engine, job, running, agent)
    assert result.outcome is Outcome.SUCCEEDED, result
    return result
