"""The agent with the real ansible-runner, as in an execution environment."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import ansible_runner
import orjson
import pytest

from runner.agent.frames import Exit
from runner.agent.preload import IDENT
from runner.agent.process_tree import STUCK_ERROR
from runner.core.proxy.http.limits import Turn
from runner.engines.pod.certificates import issue, make_authority, server_context
from runner.engines.pod.connection import parse
from runner.engines.pod.idle import IdleLink
from runner.engines.pod.links import AgentEnd, Link
from tests.kit.agents import NAME, RUN, TOKEN, Operator, agent_application, free_port, receive_all
from tests.kit.wait import patience, until

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: "{{ greeting }}"}
      loop: [1, 2, 3]
    - command: WAIT
"""

Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    authority = make_authority()
    made = Operator(tmp_path, server_context(*issue(authority, [NAME])), authority[0])
    await made.start()
    yield made
    await made.links.close()


def transmit(folder: Path, command: str, files: dict[str, str] | None = None, task: str = "") -> Path:
    """Write an order as `ansible-runner transmit` does."""
    (folder / "run" / "project").mkdir(parents=True)
    (folder / "run" / "tmp").mkdir()
    for name, text in (files or {}).items():
        (folder / "run" / name).parent.mkdir(exist_ok=True)
        (folder / "run" / name).write_text(text)
    playbook = PLAYBOOK.replace("WAIT", command)
    if task == "dies":
        playbook += "    - dies:\n"
    (folder / "run" / "project" / "play.yml").write_text(playbook)
    order = folder / "order"
    with order.open("wb") as file:
        ansible_runner.run(
            private_data_dir=str(folder / "run"),
            streamer="transmit",
            _output=file,
            playbook="play.yml",
            inventory="localhost ansible_connection=local",
            extravars={"greeting": "from the order"},
            ident=IDENT,
        )
    return order


def process(folder: Path, lines: list[bytes]) -> tuple[list[dict[str, Any]], Any]:
    """Read a worker's output as `ansible-runner process` does; return its events and its result."""
    events: list[dict[str, Any]] = []
    (folder / "processed").mkdir()
    result = ansible_runner.run(
        private_data_dir=str(folder / "processed"),
        streamer="process",
        _input=io.BytesIO(b"".join(line + b"\n" for line in lines)),
        event_handler=events.append,
        quiet=True,
        ident="1",
    )
    return events, result


@pytest.fixture
async def start(operator: Operator, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Process]]]:
    """Start the agent."""
    started: list[Process] = []

    async def begin(
        bin_: Path = Path(sys.executable).parent, constants: dict[str, object] | None = None, **files: str
    ) -> Process:
        (tmp_path / "work").mkdir()
        source = tmp_path / "settings/agent.py"
        settings = operator.settings(**files)
        source.write_bytes(agent_application(RELAY_PORT=free_port(), METRICS_PORT=free_port(), **(constants or {})))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(source),
            str(settings),
            str(tmp_path / "work"),
            env={"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield begin
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.kill()
        await each.communicate()


def cut_after(link: Link, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Abort the connection after each so many frames."""
    taken: Callable[..., None] = link.receive_frame

    def receive_frame(kind: int, number: int, payload: bytes, turn: Turn | None) -> None:
        taken(kind, number, payload, turn)
        if number % every == 0 and link._connection is not None:
            link._connection._writer.transport.abort()

    monkeypatch.setattr(link, "receive_frame", receive_frame)


async def test_a_real_run_is_complete_although_its_connection_ends_again_and_again(
    operator: Operator, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = operator.links.open(RUN, TOKEN, transmit(tmp_path, "echo done"))
    cut_after(link, monkeypatch, every=4)
    pod = await start()
    frames = await receive_all(link)
    ending = parse(AgentEnd, frames[-1].payload)
    assert (ending.code, ending.error) == (0, ""), ending
    events, result = process(tmp_path, [frame.payload for frame in frames[:-1]])
    assert result.status == "successful"
    assert [frame.number for frame in frames if b'"zipfile"' in frame.payload] == []
    assert [event["counter"] for event in events] == list(range(1, len(events) + 1))
    items = [event["event_data"]["res"]["msg"] for event in events if event["event"] == "runner_item_on_ok"]
    assert items == ["from the order"] * 3
    assert link.connects > 2
    for frame in frames[:-1]:
        text = orjson.loads(frame.payload).get("stdout", "") if frame.payload.startswith(b'{"uuid"') else ""
        link.acknowledge(frame.number, text + "\n" if text else "")
    assert await link.recorded(20)
    out, _ = await pod.communicate()
    assert pod.returncode == Exit.DONE
    assert out.decode().count("TASK [") == 2


DIES = """
import os, signal
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        # As when the kernel kills a worker that sends its result.
        Display()._final_q._wlock.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("task", ["dies", "sleeps"])
async def test_a_run_that_is_stuck_after_the_kernel_killed_a_worker_ends_and_one_that_waits_does_not(
    operator: Operator, start: Start, tmp_path: Path, task: str
) -> None:
    cgroup, own = tmp_path / "machine/sys/fs/cgroup/memory", tmp_path / "machine/proc/self/cgroup"
    for each in (cgroup, own.parent):
        each.mkdir(parents=True)
    own.write_text("4:memory:/\n")
    (cgroup / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
    link = operator.links.open(
        RUN, TOKEN, transmit(tmp_path, "sleep 4", {"project/action_plugins/dies.py": DIES}, task)
    )
    await start(
        constants={
            "_STUCK": 1.0,
            "_LOOK": 0.1,
            "_ROOT": f'Path("{tmp_path}/machine")',
        }
    )
    number, lines = 0, []
    async with asyncio.timeout(patience()):
        while not (frame := await link.receive()).end:
            lines.append(frame.payload)
            if b"TASK [" in frame.payload and not number:
                number = 3
                (cgroup / "memory.oom_control").write_text(f"under_oom 0\noom_kill {number}\n")
    ending = parse(AgentEnd, frame.payload)
    assert ending.oom_kills == 1
    assert ending.error == (STUCK_ERROR if task == "dies" else "")
    assert (b'"status": "successful"' in b"".join(lines)) is (task == "sleeps")
    assert await link.recorded(20)


async def test_a_stopped_real_run_leaves_no_process_and_delivers_its_events(
    operator: Operator, start: Start, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    link = operator.links.open(RUN, TOKEN, transmit(tmp_path, f"sh -c 'echo $$ > {began}; exec sleep 1007'"))
    await start()
    await until(lambda: began.exists() and began.read_text())
    link.stop()
    frames = await receive_all(link)
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)
    assert parse(AgentEnd, frames[-1].payload).code not in {None, 0}
    _, result = process(tmp_path, [frame.payload for frame in frames[:-1]])
    assert result.status == "canceled"
    assert await link.recorded(20)


WARM = "warm-thing-1"


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def exists(pid: str) -> bool:
    return Path("/proc", pid).exists()


async def in_warm_pod(
    operator: Operator, start: Start, order: Path, warm: dict[str, str], **options: Any
) -> tuple[IdleLink, Process, list[bytes], AgentEnd]:
    """Run an order in a warm pod; return what the idle agent and the run reported."""
    changes: list[None] = []
    idle = operator.links.expect(WARM, "idle-token", lambda: changes.append(None))
    pod = await start(warm=json.dumps(warm), run=WARM, token="idle-token", **options)
    await until(lambda: idle.is_ready)
    link = operator.links.open(RUN, TOKEN, order)
    idle.assign(RUN, TOKEN)
    frames = await receive_all(link)
    assert await link.recorded(20)
    return idle, pod, [frame.payload for frame in frames[:-1]], parse(AgentEnd, frames[-1].payload)


def settings(**environment: str) -> dict[str, str]:
    return {
        "env/envvars": json.dumps({"ANSIBLE_NOCOLOR": "1", **environment}),
        "project/ansible.cfg": "[defaults]\nhost_key_checking = true\n",
    }


def comparable(events: list[dict[str, Any]]) -> list[Any]:
    """Events without values that differ between any two runs."""
    ignored = {"uuid", "pid", "created", "start", "end", "duration", "parent_uuid", "delta", "cmd"}

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(each) for key, each in value.items() if not key.endswith("uuid") and key not in ignored}
        return [clean(each) for each in value] if isinstance(value, list) else value

    return [clean(event) for event in events]


async def test_a_run_in_a_warm_pod_equals_another_one(operator: Operator, start: Start, tmp_path: Path) -> None:
    results = []
    files = settings(ANSIBLE_LOCAL_TEMP=str(tmp_path / "work/run/tmp"), PYTHONPATH=str(tmp_path / "work/run/project"))
    for name in ("cold", "warm"):
        order = transmit(tmp_path / name, "echo done", files)
        if name == "cold":
            link = operator.links.open(RUN, TOKEN, order)
            await start()
            frames = await receive_all(link)
            lines, ending = [frame.payload for frame in frames[:-1]], parse(AgentEnd, frames[-1].payload)
            link.fence()
            link.close()
            shutil.rmtree(tmp_path / "work")
        else:
            idle, pod, lines, ending = await in_warm_pod(operator, start, order, files)
            assert idle.problem == ""
            assert await pod.wait() == Exit.DONE
        assert (ending.unused, ending.error) == ("", "")
        events, result = process(tmp_path / name, lines)
        results.append((comparable(events), result.status, result.rc, ending.code))
    assert results[0] == results[1]
    assert len(results[0][0]) > 5


@pytest.mark.parametrize(
    ("warm", "reason"),
    [
        (settings(ANSIBLE_TIMEOUT="20"), "the run has other values of ANSIBLE_TIMEOUT"),
        pytest.param(
            settings() | {"project/ansible.cfg": ""},
            "the run has another folder or ansible.cfg",
            marks=pytest.mark.nightly,
        ),
    ],
)
async def test_a_run_with_other_settings_than_the_warm_pod_starts_ansible(
    operator: Operator, start: Start, tmp_path: Path, warm: dict[str, str], reason: str
) -> None:
    _, _, lines, ending = await in_warm_pod(operator, start, transmit(tmp_path, "echo done", settings()), warm)
    assert (ending.code, ending.unused) == (0, reason)
    assert process(tmp_path, lines)[1].status == "successful"


async def test_a_warm_pod_whose_ansible_cannot_be_loaded_says_so_and_serves_its_run(
    operator: Operator, start: Start, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ansible-runner").symlink_to(Path(sys.executable).parent / "ansible-runner")
    own = Path(sys.executable).parent / "ansible-playbook"
    (programs / "ansible-playbook").write_text(f'#!/bin/sh\nexec {own} "$@"\n')
    (programs / "ansible-playbook").chmod(0o755)
    order = transmit(tmp_path, "echo done", settings())
    idle, _, lines, ending = await in_warm_pod(operator, start, order, settings(), bin_=programs)
    assert "does not name its Python in its first line" in idle.problem
    assert (ending.code, ending.unused) == (0, "")
    assert process(tmp_path, lines)[1].status == "successful"


@pytest.mark.nightly
async def test_an_ansible_that_is_not_loaded_in_time_is_started_for_the_run(
    operator: Operator, start: Start, tmp_path: Path
) -> None:
    order = transmit(tmp_path, "echo done", settings())
    constants = {"_PRELOAD_TIMEOUT": 0.1}
    idle, _, lines, ending = await in_warm_pod(operator, start, order, settings(), constants=constants)
    assert idle.problem == "it was not loaded within 0.1 s"
    assert (ending.code, ending.unused) == (0, "")
    assert process(tmp_path, lines)[1].status == "successful"


async def test_an_idle_agent_that_is_not_needed_ends_with_its_processes(
    operator: Operator, start: Start, tmp_path: Path
) -> None:
    idle = operator.links.expect(WARM, "idle-token", lambda: None)
    constants = {"_IDLE_PATIENCE": 0.01}  # less than it takes to load Ansible
    pod = await start(warm=json.dumps(settings()), run=WARM, token="idle-token", constants=constants)
    await until(lambda: idle.is_ready)
    below = children(pod.pid)
    assert below
    idle.dismiss()
    assert await pod.wait() == Exit.DONE
    assert not any(exists(child) for child in below)
