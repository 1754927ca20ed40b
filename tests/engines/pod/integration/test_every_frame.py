"""A run of the real ansible-runner, recorded, whose agent, pod or operator ends at each of its frames.

The agent is real, and replays the recorded lines. The end of a pod is that of its processes, and what Kubernetes
reports of it. tests/integration/image does the same at some frames on a real node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import ansible_runner
import orjson
import pytest

from runner.agent.frames import Exit, Kind
from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.proxy.http.limits import Turn
from runner.engines.pod.engine import PodEngine
from runner.engines.pod.links import Link
from runner.engines.pod.states import PodState
from runner.engines.pod.stream import MARK, mark_of
from runner.values.errors import RunDetachedError
from tests.engines.pod.integration.bed import Bed, conclude
from tests.kit.agents import RUN, TOKEN, Client, Operator, agent_application, free_port, receive_all
from tests.kit.wait import patience

pytestmark = [pytest.mark.full]

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
  - ansible.builtin.debug: {msg: hello}
  - ansible.builtin.command: echo done
"""
TASKS = 2
REPLAY = """#!/bin/sh
if [ "$1" = --version ]; then echo 2.4.0; exit; fi
head -n {first} {lines}
while [ ! -e {gate} ]; do sleep 0.02; done
tail -n +{rest} {lines}
"""
"""A worker that prints the first lines, and the others when the gate is open."""
MakeReplay = Callable[[int], Awaitable["Replay"]]
KILLED = "its container ended with exit code 137"


@dataclass
class Pods:
    """Processes of agents."""

    folder: Path
    started: list[Process] = field(default_factory=list)

    async def start(self, settings: dict[str, str], script: str = "") -> Process:
        """Start the agent of a run. `script`: what ansible-runner is; empty: the real one."""
        folder = self.folder / f"pod-{len(self.started)}"
        for name in ("settings", "work", "bin"):
            (folder / name).mkdir(parents=True)
        for name, text in settings.items():
            (folder / "settings" / name).write_text(text)
        source = folder / "agent.py"
        source.write_bytes(agent_application(RELAY_PORT=free_port(), METRICS_PORT=free_port(), FIRST_DELAY=0.02))
        programs = str(Path(sys.executable).parent)
        if script:
            programs = str(folder / "bin")
            (folder / "bin/ansible-runner").write_text(script)
            (folder / "bin/ansible-runner").chmod(0o755)
        self.started.append(
            await asyncio.create_subprocess_exec(
                *(sys.executable, str(source), str(folder / "settings"), str(folder / "work")),
                env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return self.started[-1]

    def settings(self) -> Path:
        """The settings of the newest agent."""
        return self.folder / f"pod-{len(self.started) - 1}" / "settings"


def kill(pod: Process) -> None:
    """Kill an agent and what it started, as the kernel does with the processes of a container."""
    processes = [pod.pid]
    for pid in processes:
        with contextlib.suppress(FileNotFoundError):
            processes += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[Pods]:
    made = Pods(tmp_path / "pods")
    yield made
    for each in made.started:
        if each.returncode is None:
            kill(each)
        await each.wait()


@pytest.fixture
async def recorded(bed: Bed, pods: Pods, tmp_path: Path) -> list[bytes]:
    """The lines of a run of the real ansible-runner, whose events have the number of the token TOKEN."""
    project = tmp_path / "recorded"
    (project / "project").mkdir(parents=True)
    (project / "project/play.yml").write_text(PLAYBOOK)
    order = tmp_path / "recorded-order"
    with order.open("wb") as file:
        ansible_runner.run(
            private_data_dir=str(project),
            streamer="transmit",
            _output=file,
            playbook="play.yml",
            inventory="localhost ansible_connection=local",
            envvars={"PROJECT_UPDATE_ID": str(mark_of(TOKEN))},
            ident="1",
        )
    operator = Operator(tmp_path, bed.certificates.context, bed.certificates.authority.encode())
    await operator.start()
    link = operator.links.open(RUN, TOKEN, order)
    files = operator.settings()
    await pods.start({each.name: each.read_text() for each in files.iterdir()})
    frames = await receive_all(link)
    assert await link.recorded(20)
    await operator.links.close()
    lines = [frame.payload for frame in frames[:-1]]
    statuses = [orjson.loads(line).get("status") for line in lines if line]
    assert statuses[0] == "starting"
    assert "successful" in statuses
    return lines


@dataclass
class Replay:
    """One run, which an agent replays from the recorded lines."""

    bed: Bed
    pods: Pods
    lines: list[bytes]
    frame: int
    """The frame at which something ends. The agent sends the next one when the gate is open."""
    events: list[Event] = field(default_factory=list)
    """What the log of the operator gets."""

    @property
    def gate(self) -> Path:
        return self.bed.folder / f"gate-{self.frame}"

    async def start(
        self, engine: PodEngine, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[asyncio.Task[RunResult], dict[str, str]]:
        """Start a run and its agent; return when the operator has the frame."""
        reached = asyncio.Event()
        take: Callable[..., None] = Link.receive_frame

        def receive_frame(link: Link, kind: int, number: int, payload: bytes, turn: Turn | None) -> None:
            take(link, kind, number, payload, turn)
            if number == self.frame:
                reached.set()

        monkeypatch.setattr(Link, "receive_frame", receive_frame)
        running = asyncio.create_task(engine.run(job, self.events.append))
        record = await self.bed.record()
        self.bed.pods.states[record["run"]] = PodState(f"{record['run']}-x", "n1")
        pod = await self.agent(record, self.frame)
        async with asyncio.timeout(patience()):
            await reached.wait()
        monkeypatch.setattr(Link, "receive_frame", take)
        assert pod.returncode is None
        return running, record

    async def agent(self, record: dict[str, str], first: int) -> Process:
        """Start an agent, which sends so many lines before the gate."""
        file = self.bed.folder / f"lines-{record['run']}"
        old, new = (b'"%s": %d' % (MARK.encode(), mark_of(token)) for token in (TOKEN, record["token"]))
        file.write_bytes(b"".join(line + b"\n" for line in self.lines).replace(old, new))
        if first > len(self.lines):
            self.gate.touch()
        script = REPLAY.format(first=first, rest=first + 1, lines=file, gate=self.gate)
        return await self.pods.start(record, script)

    async def is_refused(self, record: dict[str, str]) -> bool:
        """Whether the operator refuses another agent with the token of the run."""
        client = await Client.connect(self.bed.operators[-1])
        client.hello(run=record["run"], token=record["token"], last=self.frame)
        kind, _, _ = await client.receive()
        client.close()
        return kind == Kind.REFUSED

    def counters(self, first: int = 0) -> list[int]:
        """The numbers of the events from a position on; each one is there once, in order."""
        found = [event["counter"] for event in self.events[first:]]
        assert found == sorted(set(found))
        return found


def has_succeeded(lines: list[bytes]) -> bool:
    return any(b'"status": "successful"' in line for line in lines)


@pytest.fixture
async def replay(bed: Bed, pods: Pods, recorded: list[bytes]) -> MakeReplay:
    """Make a run of an object of its own, at a frame."""

    async def make(frame: int) -> Replay:
        await bed.another_owner(f"object-{frame}")
        return Replay(bed, pods, recorded, frame)

    return make


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["agent", "pod"])
async def test_a_run_whose_agent_or_pod_is_killed_at_any_frame_has_one_outcome(
    bed: Bed, pods: Pods, recorded: list[bytes], replay: MakeReplay, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("runner.engines.pod.engine.STOP_WITHIN", 0.2)
    engine = await bed.engine()
    outcomes: list[Outcome] = []
    for frame in range(1, len(recorded) + 2):
        run = await replay(frame)
        running, record = await run.start(engine, job := bed.job(), monkeypatch)
        if end == "agent":
            bed.pods.states[record["run"]] = PodState(f"{record['run']}-x", "n1", ended=KILLED)
        else:
            del bed.pods.states[record["run"]]
        kill(pods.started[-1])
        async with asyncio.timeout(patience()):
            result = await running
        assert await run.is_refused(record), frame
        await engine.recorded(job)
        outcomes.append(result.outcome)
        is_ended = frame > len(recorded)
        if is_ended or (end == "agent" and has_succeeded(recorded[:frame])):
            assert result.outcome is Outcome.SUCCEEDED, frame
        elif end == "agent":
            has_begun = any(b'"event"' in line for line in recorded[:frame])
            assert result.outcome is (Outcome.DIED if has_begun else Outcome.NOT_STARTED), frame
            assert KILLED in result.message
        else:
            assert (result.outcome, result.failures) == (Outcome.CANCELED, ()), frame
            assert "it was deleted" in result.message
        run.counters()
        assert await bed.objects("secrets") == [], frame
        assert len(await bed.objects("jobs")) <= (end == "agent"), frame  # its log says why
        if result.outcome is Outcome.CANCELED:
            await _repeat(engine, run, bed.job())
    assert len(outcomes) > 10
    assert outcomes[-1] is Outcome.SUCCEEDED


async def _repeat(engine: PodEngine, run: Replay, job: Job) -> None:
    """Repeat a run, as the controller does with a canceled one."""
    running = asyncio.create_task(engine.run(job, run.events.append))
    record = await run.bed.record(newest=True)
    run.bed.pods.states[record["run"]] = PodState(f"{record['run']}-y", "n1")
    before = len(run.events)
    pod = await run.agent(record, len(run.lines) + 1)
    result = await conclude(engine, job, running)
    assert result.outcome is Outcome.SUCCEEDED, run.frame
    assert result.recap is not None
    assert result.recap.ok == TASKS
    assert len(run.counters(before)) > TASKS
    assert await pod.wait() == Exit.DONE
    assert len(await run.bed.objects("jobs")) == 1


@pytest.mark.parametrize("folder", ["same", pytest.param("other", marks=pytest.mark.nightly)])
async def test_a_run_that_another_operator_takes_over_at_any_frame_has_one_outcome_and_one_job(
    bed: Bed,
    pods: Pods,
    recorded: list[bytes],
    replay: MakeReplay,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    for frame in range(1, len(recorded) + 2):
        run = await replay(frame)
        first = await bed.engine()
        running, record = await run.start(first, job := bed.job(), monkeypatch)
        await first.close(0)
        if frame <= len(recorded):
            with pytest.raises(RunDetachedError):
                await running
        else:
            with contextlib.suppress(RunDetachedError):  # it may have read the last frame
                await running
        await bed.operators[-1].links.close()
        before = len(run.events)
        second = await bed.engine()
        found = await bed.resumed(second)
        assert found.name == record["run"]
        place = job.run_dir if folder == "same" else bed.runner_dir / "one"
        again = bed.job(resumed=found, run_dir=place)
        resuming = asyncio.create_task(second.run(again, run.events.append))
        (pods.settings() / "server").write_text(f"127.0.0.1:{bed.operators[-1].port}")
        run.gate.touch()
        result = await conclude(second, again, resuming)
        assert result.outcome is Outcome.SUCCEEDED, (frame, result)
        assert result.recap is not None
        assert result.recap.ok == TASKS
        assert run.counters() if folder == "same" else run.counters(before)
        assert await pods.started[-1].wait() == Exit.DONE
        assert len(await bed.objects("jobs")) == 1
        assert await bed.objects("secrets") == []
