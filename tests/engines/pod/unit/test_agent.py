"""The agent as a process, with a script in place of ansible-runner; the real one is in the integration tests."""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner import agent
from runner.agent import frames, process_tree, worker
from runner.agent import start as agent_start
from runner.agent.frames import Exit
from runner.agent.spool import ArtifactsFilter, Spool
from runner.engines.pod import jobs
from runner.engines.pod.connection import parse
from runner.engines.pod.links import AgentEnd, Link
from runner.engines.pod.spool import Frame
from runner.features.rolemetrics import endpoint as role_metrics
from tests.kit.agents import ORDER, Operator, agent_application, free_port, receive_all
from tests.kit.wait import patience, until

pytestmark = pytest.mark.lengthy

VERSION = 'if [ "$1" = --version ]; then echo 2.4.0; exit; fi\n'
HANG = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $!; while :; do sleep 0.1; done"
"""A worker that prints the process ID of a child in another session; neither ends on SIGTERM."""


@dataclass
class Started:
    """A process of the agent."""

    process: asyncio.subprocess.Process
    work: Path
    relay: int
    metrics: int

    async def end(self) -> tuple[int, bytes, bytes]:
        """Wait for the end; return the exit code and what was written to both streams."""
        async with asyncio.timeout(patience()):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out, err


Start = Callable[..., Awaitable[Started]]


@pytest.fixture
async def start(operator: Operator, tmp_path: Path) -> AsyncIterator[Start]:
    """Start an agent. `script`: what ansible-runner is; `constants`: values in place of those in the source."""
    started: list[Started] = []

    async def begin(script: str | None = None, work: Path | None = None, **constants: object) -> Started:
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        if script is not None:
            (programs / "ansible-runner").write_text(f"#!/bin/sh\n{script}\n")
            (programs / "ansible-runner").chmod(0o755)
        relay, metrics = free_port(), free_port()
        file = tmp_path / "agent.py"
        short = {"RELAY_PORT": relay, "METRICS_PORT": metrics, "_DELIVERY": 0.1}
        file.write_bytes(agent_application(**(short | constants)))
        if work is None:
            work = tmp_path / f"work-{len(started)}"
            work.mkdir()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(file),
            str(operator.settings()),
            str(work),
            env={"PATH": f"{programs}:/usr/bin:/bin"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(Started(process, work, relay, metrics))
        return started[-1]

    yield begin
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            each.process.kill()
    end_workers(tmp_path / "bin")
    for each in started:
        await each.process.communicate()


def end_workers(programs: Path) -> None:
    """End what killed agents have left: their workers, which hold their output open."""
    for pid in process_tree.table():
        with contextlib.suppress(OSError):
            if os.fsencode(programs) in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)


async def ending_of(link: Link) -> AgentEnd:
    return parse(AgentEnd, (await receive_all(link))[-1].payload)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_worker_gets_the_order_and_each_of_its_lines_is_a_frame(link: Link, start: Start) -> None:
    started = await start(
        VERSION
        + 'echo "$@"; head -c 5000 /dev/zero | tr "\\0" x >&2; echo last >&2; cat; echo; printf incomplete; exit 3'
    )
    frames = await receive_all(link)
    lines = [frame.payload for frame in frames[:-1]]
    assert lines[0].decode() == f"worker --private-data-dir {started.work / 'run'}"
    assert lines[1:] == [*ORDER.splitlines(), b""]
    assert (started.work / "run").is_dir()
    ending = parse(AgentEnd, frames[-1].payload)
    assert (ending.code, ending.error) == (3, "")
    assert ending.stderr == "x" * (4096 - 5) + "last\n"
    assert ending.oom_kills == 0
    link.acknowledge(1, "PLAY [all]\n")
    assert await link.recorded(20)
    assert await started.end() == (Exit.DONE, b"PLAY [all]\n", b"")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (None, "cannot start ansible-runner: [Errno 2] No such file or directory: 'ansible-runner'"),
        ("echo 2.3.6", "ansible-runner is 2.3.6"),
        ("echo 1.4.0", "ansible-runner is 1.4.0"),
        ("echo ImportError: six; exit 1", "ansible-runner --version printed 'ImportError: six'"),
        ("exec sleep 100", "ansible-runner --version did not end within 1 s"),
    ],
)
async def test_an_image_without_a_recent_ansible_runner_is_an_error_with_its_remedy(
    link: Link, start: Start, script: str | None, error: str
) -> None:
    await start(script, _VERSION_TIMEOUT=1)
    ending = await ending_of(link)
    assert ending.error == f"{error}; the image needs ansible-runner 2.4 or later"
    assert ending.code is None


@pytest.mark.parametrize("version", ["2.4.0", "2.4.3.dev1", "2.10.0", "3.0.0"])
async def test_later_versions_are_accepted(link: Link, start: Start, version: str) -> None:
    await start(VERSION.replace("2.4.0", version))
    assert (await ending_of(link)).code == 0


async def test_a_stopped_run_leaves_no_process(link: Link, start: Start) -> None:
    await start(VERSION + HANG, _GRACE=0.2)
    child = int((await link.receive()).payload)
    assert is_alive(child)
    link.stop()
    link.stop()
    ending = await ending_of(link)
    assert (ending.code, ending.error) == (-signal.SIGKILL, "")
    assert not is_alive(child)


async def test_a_worker_that_ends_on_request_gets_no_second_signal(link: Link, start: Start) -> None:
    await start(VERSION + "trap 'echo ended; exit 5' TERM; echo begun; while :; do sleep 0.05; done")
    await link.receive()
    link.stop()
    frames = await receive_all(link)
    assert frames[0] == Frame(2, b"ended", end=False)
    assert parse(AgentEnd, frames[1].payload).code == 5


async def test_a_run_that_is_stopped_before_it_begins_does_not_begin(link: Link, start: Start) -> None:
    link.stop()
    started = await start(VERSION + "echo begun")
    frames = await receive_all(link)
    assert parse(AgentEnd, frames[0].payload).error == "the run was stopped before Ansible started"
    assert await link.recorded(20)
    assert (await started.end())[0] == Exit.DONE


async def test_background_processes_end_with_the_worker(link: Link, start: Start) -> None:
    await start(VERSION + "setsid sleep 1000 & echo $!", _LEFTOVER_GRACE=5)
    frames = await receive_all(link)
    assert not is_alive(int(frames[0].payload))
    assert parse(AgentEnd, frames[1].payload).code == 0


async def test_a_process_of_another_user_neither_fails_nor_delays_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: dict[int, bytes]
) -> None:
    """A role starts one with `become`, and it holds the worker's output open."""
    program = tmp_path / "ansible-runner"
    program.write_text(f"#!/bin/sh\n{VERSION}setsid sleep 1000 & echo $!\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(worker, "_LEFTOVER_GRACE", 0.1)
    (tmp_path / "order").write_bytes(b"")
    kill, foreign = os.kill, set()

    def refuse(pid: int, number: int) -> None:
        foreign.add(pid)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "kill", refuse)
    spool = Spool(tmp_path / "spool")
    try:
        async with asyncio.timeout(patience()):
            await worker.Worker(tmp_path, spool).run(tmp_path / "order", "")
    finally:
        background = int(b"".join(spool.pieces(1))[frames.HEADER.size :])
        kill(background, signal.SIGKILL)
    assert spool.last == 2
    ending = parse(AgentEnd, b"".join(spool.pieces(2))[frames.HEADER.size :])
    assert (ending.code, ending.error) == (0, "")
    assert background in foreign  # beside children of the test process
    assert logged[2].count(b"processes of the run remain until the pod ends") == 1


def test_the_http_proxy_of_a_pod_is_not_used_for_the_api_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: dict[str, str] = {}

    async def run(*_: Path) -> Exit:
        environment.update(os.environ)
        return Exit.DONE

    for name, value in {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc", "no_proxy": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.getLogger("asyncio"), "setLevel", lambda _: None)
    monkeypatch.setattr(agent_start, "_main", run)
    monkeypatch.setattr(sys, "argv", ["agent.py", str(tmp_path), str(tmp_path)])
    with pytest.raises(SystemExit):
        agent_start.main()
    assert environment["NO_PROXY"] == environment["no_proxy"] == ".svc,127.0.0.1"


async def test_a_fence_ends_ansible_at_once(operator: Operator, link: Link, start: Start) -> None:
    started = await start(VERSION + HANG)
    child = int((await link.receive()).payload)
    link.fence()
    code, _, err = await started.end()
    assert (code, err) == (Exit.REFUSED, b"ansible-operator: the operator ended this run: the run was ended\n")
    assert not is_alive(child)


async def test_a_deleted_pod_ends_ansible_and_delivers_the_ending(link: Link, start: Start) -> None:
    started = await start(VERSION + HANG, _GRACE=0.2, _DELIVERY=60)
    await link.receive()
    started.process.send_signal(signal.SIGTERM)
    assert (await ending_of(link)).code == -signal.SIGKILL
    assert await link.recorded(20)
    assert (await started.end())[0] == Exit.DONE


async def test_a_deleted_pod_without_operator_ends(operator: Operator, link: Link, start: Start) -> None:
    started = await start(VERSION + HANG, _GRACE=0.2)
    child = int((await link.receive()).payload)
    await operator.links.close()
    started.process.send_signal(signal.SIGTERM)
    code, _, err = await started.end()
    assert code == Exit.TERMINATED
    assert b"the connection to the operator" in err or b"cannot connect" in err
    assert not is_alive(child)


async def test_without_operator_for_too_long_ansible_ends(operator: Operator, link: Link, start: Start) -> None:
    started = await start(VERSION + HANG, _GRACE=0.2, _PATIENCE=0.5)
    child = int((await link.receive()).payload)
    await operator.links.close()
    assert (await started.end())[0] == Exit.ABANDONED
    assert not is_alive(child)


async def test_ansible_never_starts_twice_in_a_pod(link: Link, start: Start) -> None:
    first = await start(VERSION + "echo begun; exec sleep 1000")
    await link.receive()
    first.process.kill()
    await first.end()
    second = await start(work=first.work)
    code, _, err = await second.end()
    assert code == Exit.USED
    assert b"Ansible must not run twice" in err


async def test_a_line_that_is_too_long_ends_the_run_with_an_error(link: Link, start: Start) -> None:
    await start(VERSION + "echo short; yes xxxxxxxxx | tr -d '\\n'", LARGEST=1_000_000, _GRACE=0.2)
    frames = await receive_all(link)
    assert frames[0].payload == b"short"
    assert parse(AgentEnd, frames[-1].payload).error == "ansible-runner wrote a line of more than 1000000 bytes"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100])
def test_artifacts_are_removed_wherever_the_output_is_divided(size: int) -> None:
    content = base64.b64encode(b'{"zipfile": 9}\n' * 100)[: (size + 2) // 3 * 4]
    before = b'{"uuid": "a"}\n\n{"zipfile": "text"}\n{"z\n'
    after = b'{"eof": true}\n{"event": "{\\"zipfile\\": 5}"}\n'
    output = before + b'{"zipfile": %d}\n' % size + content + after
    for cut in range(len(output)):
        removing = ArtifactsFilter()
        assert removing.feed(output[:cut]) + removing.feed(output[cut:]) == before + after, cut
    removing = ArtifactsFilter()
    assert b"".join(removing.feed(output[at : at + 1]) for at in range(len(output))) == before + after


@pytest.mark.parametrize(
    ("limit", "error"),
    [(512, "cannot store the order of the run"), (400_000, "cannot store the output of ansible-runner")],
)
async def test_a_full_disk_ends_the_run_with_an_error(link: Link, start: Start, limit: int, error: str) -> None:
    limited = f"(2, 4); import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    await start(VERSION + "yes", _GRACE=0.2, _OLDEST_RUNNER=limited)
    assert (await ending_of(link)).error == f"{error}: [Errno 27] File too large"


async def call(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /")
    async with asyncio.timeout(patience()):
        answer = await reader.read(100)
    writer.close()
    return answer


async def test_api_calls_pass_and_wait_while_the_operator_restarts(
    operator: Operator, link: Link, start: Start
) -> None:
    started = await start(VERSION + "echo begun; exec sleep 1000")
    await link.receive()
    assert await call(started.relay) == b"echo:GET /"
    await operator.links.close()
    waiting = asyncio.create_task(call(started.relay))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    await operator.start()
    operator.open()
    assert await waiting == b"echo:GET /"


async def test_a_port_for_metrics_in_use_is_an_error_of_metrics_only(link: Link, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        started = await start(VERSION + "echo fine", METRICS_PORT=port)
        assert (await receive_all(link))[0].payload == b"fine"
        assert await link.recorded(20)
        code, _, err = await started.end()
    assert code == Exit.DONE
    assert f"cannot listen on 127.0.0.1:{port} for metrics of roles".encode() in err


def test_the_port_for_metrics_is_the_default_of_the_module() -> None:
    assert frames.METRICS_PORT == role_metrics.DEFAULT_PORT


async def test_an_api_call_without_operator_is_closed_in_the_end(operator: Operator, link: Link, start: Start) -> None:
    started = await start(VERSION + "echo begun; exec sleep 1000", _RELAY_WAIT=0.3)
    await link.receive()
    await operator.links.close()
    assert await call(started.relay) == b""
    started.process.send_signal(signal.SIGTERM)
    _, _, err = await started.end()
    assert b"an API call waited 0.3 s for the operator" in err


async def test_api_calls_move_with_the_run_to_another_operator(operator: Operator, link: Link, start: Start) -> None:
    started = await start(VERSION + "echo begun; exec sleep 1000")
    await link.receive()
    idle, writer = await asyncio.open_connection("127.0.0.1", started.relay)
    writer.write(b"1")
    assert await idle.read(100) == b"echo:1"
    other = Operator(operator.folder, operator.context, operator.ca, host="127.0.0.2", port=operator.port)
    await other.start()
    moved = other.open()
    other.settings()
    link.close()
    await until(lambda: moved.is_connected)
    async with asyncio.timeout(patience()):
        assert await idle.read(100) == b""
    writer.close()
    assert await call(started.relay) == b"echo:GET /"
    await other.links.close()


async def test_a_port_in_use_is_an_error_of_the_run(link: Link, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await start(VERSION + "echo begun", RELAY_PORT=port)
        ending = await ending_of(link)
    assert ending.error.startswith(f"cannot listen on 127.0.0.1:{port} in the pod: ")


FILES = [Path(agent.__file__), *Path(agent.__file__).parent.glob("[!_]*.py")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_for_pods_have_the_syntax_of_python_3_9_and_import_only_the_standard_library(file: Path) -> None:
    imported: set[Any] = set()
    for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(node.module)
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_application_is_small_and_the_same_each_time() -> None:
    assert jobs.archive() == jobs.archive()
    assert len(jobs.archive()) < 64 * 1024, "each run has a Secret with it"
