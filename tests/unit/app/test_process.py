"""Errors that the event loop reports, and the lock of the runner folder."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.app import process
from runner.app.process import LoopErrorHandler
from runner.core.engine.run_dir import private_folder
from runner.values.errors import ConfigError
from tests.kit.shortage import no_descriptor_left


@pytest.mark.lengthy
async def test_a_server_without_descriptors_logs_it_once_and_serves_when_descriptors_are_free() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrorHandler())
    served = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.set()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with socket.socket() as client, capture_logs() as logs:
            client.setblocking(False)  # noqa: FBT003 - the standard library's
            with no_descriptor_left():
                await loop.sock_connect(client, server.sockets[0].getsockname())
                while not logs:
                    await asyncio.sleep(0)
            await served.wait()
    assert [line["reason"] for line in logs] == ["Too many open files"]
    assert "ulimit -n" in logs[0]["event"]


async def test_a_shortage_that_continues_is_logged_again_after_a_while() -> None:
    loop, report = asyncio.get_running_loop(), LoopErrorHandler()
    context = {"message": "out of resources", "socket": None, "exception": OSError(24, "Too many open files")}
    with capture_logs() as logs:
        report(loop, context)
        report(loop, context)
        report._logged_at = loop.time() - 11
        report(loop, context)
    assert len(logs) == 2


async def test_a_signal_stops_the_operator_also_if_nothing_reads_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unread:
        def info(self, *_: object, **__: object) -> None:
            raise BrokenPipeError

        warning = info

    monkeypatch.setattr(process, "_log", Unread())
    signals = process.StopSignals(30.0)
    for event in (signals.stop, signals.urgent):
        assert not event.is_set()
        with pytest.raises(BrokenPipeError):
            signals._caught("SIGTERM")
        assert event.is_set()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A runner folder that another process uses, as long as it runs."""
    folder = tmp_path / "runner"
    code = (
        "import pathlib, sys\n"
        "from runner.app.process import runner_folder\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with runner_folder(folder, folder):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield folder
        other.kill()


@pytest.mark.lengthy
def test_a_second_operator_cannot_use_the_runner_folder_of_another_one(held: Path, tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match=f"--runner-dir: another operator uses {held}; give each")
    with refused, process.runner_folder(held, tmp_path / "default"):
        pass


@pytest.mark.lengthy
def test_a_second_operator_with_the_default_runner_folder_gets_one_beside_it(held: Path) -> None:
    with capture_logs() as logs, process.runner_folder(held, held) as folder:
        assert folder == held.with_name("runner-2")
        with process.runner_folder(held, held) as third:
            assert third == held.with_name("runner-3")
    assert [line["folder"] for line in logs] == [str(folder), str(third)]
    with process.runner_folder(held, held) as again:
        assert again == folder


@pytest.mark.lengthy
def test_the_runner_folder_of_a_killed_operator_is_free(held: Path, tmp_path: Path) -> None:
    (pid,) = (int(line) for line in (held / ".lock").read_text().splitlines())
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with process.runner_folder(held, tmp_path / "default") as folder:
        assert folder == held


def test_a_runner_folder_that_cannot_be_locked_is_used_and_reported(tmp_path: Path) -> None:
    folder, victim = tmp_path / "runner", tmp_path / "victim"
    victim.write_text("text of another file")
    folder.mkdir()
    (folder / ".lock").symlink_to(victim)
    with capture_logs() as logs, process.runner_folder(folder, folder) as used:
        assert used == folder
    assert "Cannot lock the runner folder" in logs[0]["event"]
    assert victim.read_text() == "text of another file"


@pytest.fixture
def denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runner folder in a folder of another user, which not even root of this test may use."""
    folder = tmp_path / "theirs" / "runner"
    create, access = private_folder, os.access

    def refuse(path: Path) -> None:
        if path.parent == folder.parent:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        create(path)

    monkeypatch.setattr(process, "private_folder", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).parent != folder.parent and access(path, mode))
    return folder


def test_a_default_runner_folder_of_another_user_is_replaced_by_one_of_the_own_user(denied: Path) -> None:
    with capture_logs() as logs, process.runner_folder(denied, denied) as folder:
        assert folder == denied.parent.with_name(f"theirs-{os.geteuid()}") / "runner"
    assert [(line["default"], line["folder"]) for line in logs] == [(str(denied), str(folder))]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_does_not_share_the_default_runner_folder_of_another_user(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / "runner"
    private_folder(theirs)
    for each in (theirs, theirs.parent):
        os.chown(each, 1, 1)
    with process.runner_folder(theirs, theirs) as folder:
        assert folder == tmp_path / "theirs-0" / "runner"
    with capture_logs() as logs, process.runner_folder(theirs, tmp_path / "default") as folder:
        assert folder == theirs
    assert "Cannot lock the runner folder" in logs[0]["event"]


def test_a_selected_runner_folder_of_another_user_is_an_error(denied: Path, tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match=rf"--runner-dir: this user may not use {denied} \(.*Permission denied")
    with refused, process.runner_folder(denied, tmp_path / "default"):
        pass


async def test_any_other_error_is_reported_as_asyncio_does(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrorHandler())
    loop.call_exception_handler({"message": "Something else", "exception": ValueError("why")})
    assert "Something else" in caplog.text


_LARGE_OBJECTS = """
from pathlib import Path

from runner.app.process import return_large_blocks


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10


assert return_large_blocks()
del (earlier := [b"x" * (4 << 20)])[:]
before = resident()
large, small = [], []
for _ in range(60):
    large.append(b"x" * (1 << 20))
    small.append(bytes(2000))
large.clear()
print(resident() - before)
"""


@pytest.mark.lengthy
def test_memory_of_large_objects_returns_to_the_kernel_although_small_objects_remain() -> None:
    found = subprocess.run([sys.executable, "-c", _LARGE_OBJECTS], capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 10


_SOCKET_READS = """
import resource, socket

from runner.app.process import return_large_blocks

assert return_large_blocks()
reader, writer = socket.socketpair()
for read in range(300):
    if read == 100:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    writer.send(b"x" * 40000)
    reader.recv(256 << 10)  # as asyncio's selector transport
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.lengthy
def test_a_read_of_a_socket_allocates_no_memory_from_the_kernel() -> None:
    found = subprocess.run([sys.executable, "-c", _SOCKET_READS], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 50
