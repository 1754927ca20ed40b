from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

from runner.agent import process_tree
from runner.engines.warm.modules import zygote as zygote_module
from runner.engines.warm.modules.module_process import Following
from runner.engines.warm.modules.zygote import Unavailable, Zygote
from tests.kit.shortage import no_descriptor_left
from tests.kit.wait import patience, wait_until


def ended_by(act: Callable[[], Any]) -> Callable[[list[int], Following | None], NoReturn]:
    """Make what a module's process does: take its streams and its folder, act, end or continue."""

    def run(descriptors: list[int], following: Following | None) -> NoReturn:
        code = None
        while True:
            if following:
                descriptors = following(code)
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            os.fchdir(descriptors[4])
            for descriptor in descriptors:
                os.close(descriptor)
            code = act() or 0
            if following is None:
                os._exit(code)
            with Path(os.devnull).open("r+b") as nothing:
                for number in range(3):
                    os.dup2(nothing.fileno(), number)

    return run


@pytest.fixture
def zygote_of() -> Iterator[Callable[[Callable[[], Any]], Zygote]]:
    begun: list[Zygote] = []

    def start(act: Callable[[], Any]) -> Zygote:
        begun.append(Zygote.start(lambda: None, ended_by(act)))
        return begun[-1]

    yield start
    for zygote in begun:
        zygote.close()
        os.waitpid(zygote.pid, 0)


def nothing() -> None:
    """Need not know when it begins."""


ZygoteOf = Callable[[Callable[[], Any]], Zygote]
REQUEST: Any = "a request is passed on as it is"


def test_standard_output_standard_error_and_exit_code_are_returned_and_standard_input_is_empty(
    zygote_of: ZygoteOf, tmp_path: Path
) -> None:
    def act() -> int:
        os.write(1, b"out " + bytes(Path.cwd()) + b"<" + os.read(0, 10) + b">")
        os.write(2, b"err")
        return 7

    output = zygote_of(act).run(REQUEST, str(tmp_path), nothing)

    assert (output.code, output.stdout, output.stderr) == (7, b"out " + bytes(tmp_path) + b"<>", b"err")


@pytest.mark.lengthy
def test_much_output_on_both_streams_does_not_block(zygote_of: ZygoteOf) -> None:
    def act() -> None:
        for _ in range(64):
            os.write(1, b"x" * 65536)
            os.write(2, b"y" * 65536)

    output = zygote_of(act).run(REQUEST, "/", nothing)

    assert (len(output.stdout), len(output.stderr)) == (64 * 65536, 64 * 65536)


@pytest.mark.lengthy
def test_a_child_that_keeps_the_output_open_is_waited_for(zygote_of: ZygoteOf) -> None:
    def act() -> None:
        if os.fork() == 0:
            signal.sigtimedwait([], 0.2)
            os.write(1, b"late")
            os._exit(0)

    output = zygote_of(act).run(REQUEST, "/", nothing)

    assert (output.code, output.stdout) == (0, b"late")


def test_modules_of_one_zygote_are_isolated(zygote_of: ZygoteOf) -> None:
    def act() -> None:
        os.write(1, os.environb.get(b"LEFT", b"nothing"))
        os.environ["LEFT"] = "something"
        sys.modules["left"] = sys

    zygote = zygote_of(act)

    assert [zygote.run(REQUEST, "/", nothing).stdout for _ in range(2)] == [b"nothing", b"nothing"]


def test_a_zygote_that_is_gone_has_run_nothing(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(lambda: None)
    os.kill(zygote.pid, signal.SIGKILL)
    os.waitid(os.P_PID, zygote.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(Unavailable):
        zygote.run(REQUEST, "/", nothing)


def test_a_missing_working_folder_is_an_error(zygote_of: ZygoteOf, tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        zygote_of(lambda: None).run(REQUEST, str(tmp_path / "missing"), nothing)


@pytest.mark.parametrize("spare", range(6))
def test_without_descriptors_for_a_module_it_refuses_the_module_and_continues(zygote_of: ZygoteOf, spare: int) -> None:
    zygote = zygote_of(lambda: os.write(1, b"ran") and 0)
    zygote.run(REQUEST, "/", nothing)

    with no_descriptor_left(spare, zygote.pid), pytest.raises(Unavailable) as refused:
        zygote.run(REQUEST, "/", nothing)

    assert refused.value.reason == ("resources" if spare > 3 else "fork_failed")
    assert zygote.run(REQUEST, "/", nothing).stdout == b"ran"


def test_without_a_descriptor_to_wait_for_a_module_it_waits_all_the_same(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(lambda: os.write(1, b"ran") and 7)
    zygote.run(REQUEST, "/", nothing)

    with no_descriptor_left(6, zygote.pid):
        outputs = [zygote.run(REQUEST, "/", nothing) for _ in range(3)]

    assert [(output.code, output.stdout) for output in outputs] == [(7, b"ran")] * 3


def test_a_client_without_descriptors_runs_nothing_and_reports_the_reason(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(lambda: None)
    for spare in range(9):  # the pipes and files of one request
        with no_descriptor_left(spare), pytest.raises(Unavailable) as refused:
            zygote.run(REQUEST, "/", nothing)
        assert refused.value.reason == "resources"
    assert zygote.run(REQUEST, "/", nothing).code == 0


def test_signals_meant_for_modules_do_not_end_it(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(lambda: os.write(1, b"still there") and 0)
    zygote.run(REQUEST, "/", nothing)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(zygote.pid, number)

    assert zygote.run(REQUEST, "/", nothing).stdout == b"still there"


def pid(zygote: Zygote, folder: str = "/", *, kept: bool = True) -> int:
    """Run a module that writes its process; return that."""
    return int(zygote.run(REQUEST, folder, nothing, kept=kept).stdout)


def write_pid() -> int:
    os.write(1, str(os.getpid()).encode())
    return 0


def test_modules_share_the_kept_process_and_others_have_their_own(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(write_pid)

    pids = [pid(zygote, kept=kept) for kept in (True, True, False, True)]

    assert pids[0] == pids[1] == pids[3] != pids[2]


def test_a_module_that_ends_the_kept_process_has_its_exit_code_and_the_next_one_has_a_new_process(
    zygote_of: ZygoteOf, tmp_path: Path
) -> None:
    def act() -> int:
        write_pid()
        if Path("killed").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if Path("ended").exists():
            os._exit(9)
        return 7

    zygote = zygote_of(act)
    first = zygote.run(REQUEST, "/", nothing, kept=True)
    for file, code in (("killed", -signal.SIGKILL), ("ended", 9)):
        before = pid(zygote)
        (tmp_path / file).touch()
        last = zygote.run(REQUEST, str(tmp_path), nothing, kept=True)
        (tmp_path / file).unlink()
        after = zygote.run(REQUEST, "/", nothing, kept=True)

        assert (first.code, last.code, after.code) == (7, code, 7)
        assert before == int(last.stdout) != int(after.stdout)


def test_while_a_module_runs_in_the_kept_process_another_has_its_own(zygote_of: ZygoteOf, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits")

    def act() -> int:
        if Path("waits").exists():
            Path("waits").read_bytes()
        return write_pid()

    zygote, begun = zygote_of(act), threading.Event()
    before = pid(zygote)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(zygote.run, REQUEST, str(tmp_path), begun.set, kept=True)
        assert begun.wait(patience())
        meanwhile = pid(zygote)
        (tmp_path / "waits").write_bytes(b"")
        waited = int(waiting.result(60).stdout)

    assert waited == before == pid(zygote) != meanwhile


def lives(number: int) -> bool:
    """Return False for a zombie too: other tests make this process the parent of orphans, which it does not reap."""
    found = process_tree.read(number)
    return found is not None and not found.zombie


def test_an_idle_kept_process_that_dies_is_replaced(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(write_pid)
    before = pid(zygote)

    os.kill(before, signal.SIGTERM)
    wait_until(lambda: not lives(before), "the kept process to end")

    assert pid(zygote) != before


def test_a_kept_process_that_was_idle_for_long_is_replaced(
    zygote_of: ZygoteOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote_module, "_IDLE_WITHIN", 0.0)
    zygote = zygote_of(write_pid)

    assert pid(zygote) != pid(zygote)


def test_the_kept_process_ends_with_the_zygote(zygote_of: ZygoteOf) -> None:
    zygote = zygote_of(write_pid)
    kept = pid(zygote)

    zygote._socket.close()

    wait_until(lambda: not lives(kept), "the kept process to end")
