"""What events hold, on its way from callbacks to the supervisor: nothing is lost, and nobody waits."""

from __future__ import annotations

import ast
import io
import json
import os
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from runner.engine.warm import told
from runner.engine.warm.told import Heard, _Told
from tests.forks import in_a_fork


class Files:
    """Stands for ansible-runner's own way."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []

    def set(self, key: str, value: Any) -> None:
        self.written.append((key.removeprefix(":1:ev-"), value))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    receiver, sender = told.pair()
    sender.settimeout(0)
    with receiver, sender:
        yield receiver, sender


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def heard(ends: tuple[socket.socket, socket.socket]) -> Heard:
    return Heard(ends[0])


@pytest.fixture
def teller(ends: tuple[socket.socket, socket.socket], files: Files) -> _Told:
    made = _Told(files, ends[1], json.JSONEncoder)
    made.set(":1:ev-first", {"makes": "the folder"})
    files.written.clear()
    return made


def tell(teller: _Told, value: Any, ident: str = "") -> str:
    ident = ident or str(uuid.uuid4())
    teller.set(f":1:ev-{ident}", value)
    return ident


def test_the_first_goes_through_a_file_which_makes_the_folder_of_all(
    ends: tuple[socket.socket, socket.socket], files: Files, heard: Heard
) -> None:
    teller = _Told(files, ends[1], json.JSONEncoder)
    first, second = tell(teller, {"n": 1}), tell(teller, {"n": 2})
    assert files.written == [(first, {"n": 1})]
    assert heard.take(first) is None
    assert heard.take(second) == {"n": 2}


def test_each_is_had_once_by_its_name_in_whatever_order(teller: _Told, heard: Heard, files: Files) -> None:
    names = [tell(teller, {"n": n, "text": "ä😀\udcff"}) for n in range(5)]
    for n in (3, 0, 4, 1, 2):
        assert heard.take(names[n]) == {"n": n, "text": "ä😀\udcff"}
        assert heard.take(names[n]) is None
    assert files.written == []


def test_two_of_one_name_are_had_in_their_order(teller: _Told, heard: Heard) -> None:
    name = tell(teller, {"n": 1})
    tell(teller, {"n": 2}, name)
    assert [heard.take(name), heard.take(name), heard.take(name)] == [{"n": 1}, {"n": 2}, None]


def test_what_is_large_goes_through_a_file(teller: _Told, heard: Heard, files: Files) -> None:
    fits, large = {"text": "x" * 65_000}, {"text": "x" * 66_000}
    names = tell(teller, fits), tell(teller, large)
    assert files.written == [(names[1], large)]
    assert heard.take(names[0]) == fits


def test_nobody_waits_for_a_supervisor_that_is_slow(teller: _Told, heard: Heard, files: Files) -> None:
    names = [tell(teller, {"n": n, "text": "x" * 60_000}) for n in range(40)]
    in_files = [name for name, _ in files.written]
    assert 0 < len(in_files) < len(names)
    assert [name for name in names if heard.take(name) is None] == in_files
    last = tell(teller, {"n": 41})
    assert heard.take(last) == {"n": 41}


def test_a_supervisor_that_is_gone_changes_nothing(
    teller: _Told, ends: tuple[socket.socket, socket.socket], files: Files
) -> None:
    ends[0].close()
    name = tell(teller, {"n": 1})
    assert files.written == [(name, {"n": 1})]


def test_a_callback_that_is_gone_leaves_what_it_said(
    teller: _Told, ends: tuple[socket.socket, socket.socket], heard: Heard
) -> None:
    name = tell(teller, {"n": 1})
    ends[1].close()
    assert heard.take("another") is None
    assert heard.take(name) == {"n": 1}


def test_workers_processes_write_files(teller: _Told, files: Files, heard: Heard) -> None:
    def act() -> object:
        tell(teller, {"n": 1})
        return len(files.written)

    assert in_a_fork(act) == "1"
    assert heard.take("any") is None


def test_the_callbacks_end_stands_behind_the_numbers_that_roles_count(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    number = told.keep(ends[1])
    try:
        assert number >= 64
        assert not os.get_inheritable(number)
    finally:
        os.close(number)


@pytest.mark.parametrize("data", [{}, {"uuid": "u" * 36}, {"uuid": "é" * 200}])
@pytest.mark.parametrize("flush", [True, False])
def test_an_event_is_marked_on_the_terminal_as_ansible_runner_marks_it(data: dict[str, str], *, flush: bool) -> None:
    def marked() -> list[tuple[str, int]]:
        from ansible_runner.display_callback.callback.awx_display import EventContext  # noqa: PLC0415 - patches Ansible

        class Stream(io.StringIO):
            flushed = 0

            def flush(self) -> None:
                self.flushed += 1

        ours, theirs, context = Stream(), Stream(), EventContext()
        told._mark(context, ours, data, flush=flush)
        EventContext.dump(context, theirs, data, flush=flush)
        return [(each.getvalue(), each.flushed) for each in (ours, theirs)]

    ours, theirs = ast.literal_eval(in_a_fork(marked))
    assert ours == theirs
