"""The agent with the real ansible-runner, as in an execution environment."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import ansible_runner
import orjson
import pytest

from runner.pods.agent import Exit
from runner.pods.certificates import issue, make_authority, server_context
from runner.pods.links import Ending, Link
from tests.unit.pods.conftest import NAME, RUN, TOKEN, Operator, agent_source, free_port, receive_all, until

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: "{{ greeting }}"}
      loop: [1, 2, 3]
    - command: WAIT
"""

Start = Callable[[], Awaitable[Process]]


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    authority = make_authority()
    made = Operator(tmp_path, server_context(*issue(authority, [NAME])), authority[0])
    await made.start()
    yield made
    await made.links.close()


def transmit(folder: Path, command: str) -> Path:
    """Write an order as `ansible-runner transmit` does."""
    (folder / "run" / "project").mkdir(parents=True)
    (folder / "run" / "project" / "play.yml").write_text(PLAYBOOK.replace("WAIT", command))
    order = folder / "order"
    with order.open("wb") as file:
        ansible_runner.run(
            private_data_dir=str(folder / "run"),
            streamer="transmit",
            _output=file,
            playbook="play.yml",
            inventory="localhost ansible_connection=local",
            extravars={"greeting": "from the order"},
            ident="1",
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

    async def begin() -> Process:
        (tmp_path / "work").mkdir()
        source = tmp_path / "agent.py"
        source.write_text(agent_source(RELAY_PORT=free_port(), METRICS_PORT=free_port()))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(source),
            str(operator.settings()),
            str(tmp_path / "work"),
            env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
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

    def receive_frame(kind: int, number: int, payload: bytes) -> None:
        taken(kind, number, payload)
        if number % every == 0 and link._connection is not None:
            link._connection._transport.abort()  # type: ignore[union-attr]

    monkeypatch.setattr(link, "receive_frame", receive_frame)


async def test_a_real_run_is_complete_although_its_connection_ends_again_and_again(
    operator: Operator, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = operator.links.open(RUN, TOKEN, transmit(tmp_path, "echo done"))
    cut_after(link, monkeypatch, every=4)
    pod = await start()
    frames = await receive_all(link)
    ending = Ending.parse(frames[-1].payload)
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
    assert pod.returncode == Exit.RECORDED
    assert out.decode().count("TASK [") == 2


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
    assert Ending.parse(frames[-1].payload).code not in {None, 0}
    _, result = process(tmp_path, [frame.payload for frame in frames[:-1]])
    assert result.status == "canceled"
    assert await link.recorded(20)
