"""How the operator treats a fork server that has not loaded everything yet."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.base.config import shortages
from runner.core.engine.wire import Order
from runner.engines.warm.messages import Load
from runner.engines.warm.server import client
from runner.engines.warm.server import scratch as scratch_folders
from runner.engines.warm.server.client import Server, ServerDiedError, ServerError
from tests.kit.shortage import no_descriptor_left


async def start_in(home: Path, load: Load | None = None) -> Server:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return await Server.start(environment, home / "folder", load or Load())


def replace_start(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let servers be this program."""
    start = folder / "start.py"
    start.write_text(text, encoding="utf-8")
    monkeypatch.setattr(client, "_START", start)


def test_stopping_does_not_wait_for_a_server_that_is_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    replace_start(
        tmp_path,
        monkeypatch,
        "import os, pathlib, time\n"
        f"pathlib.Path({str(begun)!r} + '-').write_text(str(os.getpid()))\n"
        f"os.rename({str(begun)!r} + '-', {str(begun)!r})\n"
        "time.sleep(3600)\n",
    )
    monkeypatch.setattr(client, "_ANSWER_WITHIN", 3600.0)  # the test does not wait for that either

    async def scenario() -> None:
        starting = asyncio.create_task(start_in(tmp_path))
        while not await asyncio.to_thread(begun.exists):
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(scenario())

    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text(encoding="ascii")), 0)
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_server_that_ends_before_it_answers_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_start(tmp_path, monkeypatch, "import sys\nsys.exit('first\\nno room for me')\n")

    async def scenario() -> None:
        with pytest.raises(ServerDiedError, match=r"^the fork server ended: no room for me$"):
            await start_in(tmp_path)

    asyncio.run(scenario())
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_server_whose_state_cannot_be_read_is_ended_and_counts_as_one_that_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_start(
        tmp_path,
        monkeypatch,
        "import socket, sys\n"
        "with socket.socket(fileno=int(sys.argv[1])) as operator:\n"
        "    operator.send(b'ready.json')\n"
        "    operator.recv(1)\n",
    )

    async def scenario() -> None:
        with pytest.raises(ServerError, match=r"^cannot start a fork server: .*ready\.json"):
            await start_in(tmp_path)

    asyncio.run(scenario())
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_server_that_the_operator_killed_itself_is_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_start(
        tmp_path,
        monkeypatch,
        "import pathlib, socket, sys, time\n"
        "from runner.engines.warm import messages\n"
        "with socket.socket(fileno=int(sys.argv[1])) as operator:\n"
        "    messages.write(pathlib.Path(sys.argv[2], messages.READY), messages.Ready())\n"
        "    operator.send(b'ready')\n"
        "    time.sleep(3600)\n",
    )

    async def scenario() -> str:
        server = await start_in(tmp_path)
        dying = asyncio.create_task(server.wait_for_death())
        with pytest.raises(ServerDiedError, match="did not answer within 0 s"):
            await server._request((), 0.01)
        return await dying

    assert asyncio.run(scenario()) == "the operator killed it, because it did not answer within 0 s"


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def that_has_nothing_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are ready at once and cannot fork a run."""
    replace_start(
        tmp_path,
        monkeypatch,
        "import pathlib, socket, sys\n"
        "folder = pathlib.Path(sys.argv[2])\n"
        "from runner.engines.warm import messages\n"
        "with socket.socket(fileno=int(sys.argv[1])) as operator:\n"
        "    watched = sorted(messages.read_load(folder).plugins)\n"
        "    messages.write(folder / messages.READY, messages.Ready(watched=watched))\n"
        "    operator.send(b'ready')\n"
        "    if operator.recv(1):\n"
        "        operator.send(b'no more processes')\n"
        "        operator.recv(1)\n",
    )


@pytest.mark.lengthy
@pytest.mark.usefixtures("that_has_nothing_to_load")
async def test_a_request_and_an_answer_can_be_larger_than_the_buffer_of_a_socket(tmp_path: Path) -> None:
    large = frozenset(f"/nonexistent/{number:06}" for number in range(60_000))
    server = await start_in(tmp_path, Load(plugins=large))
    try:
        assert set(server._stamps) == large
    finally:
        await server.close()


def _order(folder: Path) -> Order:
    return Order(str(folder), "run", "", [], verbosity=0, ansible_args="", kubeconfig="", temporary="", memory=0)


@pytest.mark.usefixtures("that_has_nothing_to_load")
async def test_a_server_that_cannot_fork_is_no_error_of_the_run_and_leaves_no_pipe(tmp_path: Path) -> None:
    server = await start_in(tmp_path)
    try:
        before = _open_files()
        with pytest.raises(ServerError, match=r"^the fork server cannot fork: no more processes$"):
            await server.run(_order(tmp_path), {}, ())
        assert (_open_files(), server.alive, server.runs) == (before, True, 0)
    finally:
        await server.close()


@pytest.mark.usefixtures("that_has_nothing_to_load")
async def test_without_descriptors_a_run_is_not_started_and_no_pipe_is_left(tmp_path: Path) -> None:
    server = await start_in(tmp_path)
    order = _order(tmp_path)
    try:
        before = _open_files()
        for spare in range(7):
            with no_descriptor_left(spare), pytest.raises(OSError, match="Too many open files"):
                await server.run(order, {}, ())
        assert _open_files() == before
    finally:
        await server.close()
    assert list((tmp_path / "folder").iterdir()) == []


async def test_without_descriptors_no_server_is_started_and_no_folder_is_left(tmp_path: Path) -> None:
    for spare in range(10):
        with no_descriptor_left(spare), pytest.raises(ServerError, match="Too many open files"):
            await start_in(tmp_path)
    assert not (tmp_path / "folder").exists() or list((tmp_path / "folder").iterdir()) == []


async def test_the_end_of_a_run_is_detected_after_a_shortage_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CHECK_EVERY", 0)
    process = subprocess.Popen(["/bin/sh", "-c", "exit 3"])  # noqa: ASYNC220 - asyncio's would be waited for by asyncio
    with no_descriptor_left():
        ending = asyncio.create_task(client.wait_for_exit(process.pid))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not ending.done()
    assert await ending == 3
    process.returncode = 3  # it was waited for elsewhere


@pytest.mark.usefixtures("that_has_nothing_to_load")
async def test_a_folder_that_cannot_be_removed_is_removed_when_descriptors_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortages, "_RETRY_INTERVAL", 0)
    server = await start_in(tmp_path)
    (scratch,) = (tmp_path / "folder").iterdir()
    (scratch / "TMPDIR" / "something").touch()
    attempts: list[Path] = []

    def remove(folder: Path) -> None:
        attempts.append(folder)
        scratch_folders.remove(folder)

    monkeypatch.setattr(client, "scratch_folders", SimpleNamespace(remove=remove))
    with no_descriptor_left():
        closing = asyncio.create_task(server.close())
        while len(attempts) < 2:
            await asyncio.sleep(0)
    await closing
    assert list((tmp_path / "folder").iterdir()) == []
