"""Events on their way from callbacks to the supervisor: none is lost, and the callbacks never wait."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from runner.engines.warm.patches import event_socket
from runner.engines.warm.patches.event_socket import EventReceiver, _Held, _SocketCache
from tests.kit.forks import in_a_fork


class Files:
    """Stands for ansible-runner's own way."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any]] = []

    def set(self, key: str, value: Any) -> None:
        self.written.append((key.removeprefix(":1:ev-"), value))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    receiver, sender = event_socket.pair()
    sender.settimeout(0)
    with receiver, sender:
        yield receiver, sender


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def receiver(ends: tuple[socket.socket, socket.socket]) -> EventReceiver:
    return EventReceiver(ends[0])


@pytest.fixture
def cache(ends: tuple[socket.socket, socket.socket], files: Files) -> _SocketCache:
    made = _SocketCache(files, ends[1], json.JSONEncoder)
    made.set(":1:ev-first", {"makes": "the folder"})
    files.written.clear()
    return made


def tell(cache: _SocketCache, value: Any, ident: str = "") -> str:
    ident = ident or str(uuid.uuid4())
    cache.set(f":1:ev-{ident}", value)
    return ident


def test_the_first_event_is_written_to_a_file_and_later_ones_to_the_socket(
    ends: tuple[socket.socket, socket.socket], files: Files, receiver: EventReceiver
) -> None:
    cache = _SocketCache(files, ends[1], json.JSONEncoder)
    first, second = tell(cache, {"n": 1}), tell(cache, {"n": 2})
    assert files.written == [(first, {"n": 1})]
    assert receiver.take(first) is None
    assert receiver.take(second) == {"n": 2}


def test_each_event_is_received_once_by_name_in_any_order(
    cache: _SocketCache, receiver: EventReceiver, files: Files
) -> None:
    names = [tell(cache, {"n": n, "text": "ä😀\udcff"}) for n in range(5)]
    for n in (3, 0, 4, 1, 2):
        assert receiver.take(names[n]) == {"n": n, "text": "ä😀\udcff"}
        assert receiver.take(names[n]) is None
    assert files.written == []


def test_two_events_of_one_name_are_received_in_order(cache: _SocketCache, receiver: EventReceiver) -> None:
    name = tell(cache, {"n": 1})
    tell(cache, {"n": 2}, name)
    assert [receiver.take(name), receiver.take(name), receiver.take(name)] == [{"n": 1}, {"n": 2}, None]


def test_a_large_event_is_sent_through_a_file(cache: _SocketCache, receiver: EventReceiver, files: Files) -> None:
    fits, large = {"text": "x" * 65_000}, {"text": "x" * 66_000}
    names = tell(cache, fits), tell(cache, large)
    assert files.written == [(names[1], large)]
    assert receiver.take(names[0]) == fits


def test_a_slow_supervisor_does_not_block_the_callback(
    cache: _SocketCache, receiver: EventReceiver, files: Files
) -> None:
    names = [tell(cache, {"n": n, "text": "x" * 60_000}) for n in range(40)]
    in_files = [name for name, _ in files.written]
    assert 0 < len(in_files) < len(names)
    assert [name for name in names if receiver.take(name) is None] == in_files
    last = tell(cache, {"n": 41})
    assert receiver.take(last) == {"n": 41}


def test_events_of_an_ended_callback_are_still_received_and_a_supervisor_that_is_gone_changes_nothing(
    cache: _SocketCache, ends: tuple[socket.socket, socket.socket], receiver: EventReceiver, files: Files
) -> None:
    name = tell(cache, {"n": 1})
    ends[1].close()
    assert receiver.take("another") is None
    assert receiver.take(name) == {"n": 1}
    ends[0].close()
    last = tell(cache, {"n": 2})
    assert files.written == [(last, {"n": 2})]


def test_workers_processes_write_files(cache: _SocketCache, files: Files, receiver: EventReceiver) -> None:
    def act() -> object:
        tell(cache, {"n": 1})
        return len(files.written)

    assert in_a_fork(act) == "1"
    assert receiver.take("any") is None


def test_the_callbacks_socket_has_a_high_descriptor_number(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    number = event_socket.keep(ends[1])
    try:
        assert number >= 64
        assert not os.get_inheritable(number)
    finally:
        os.close(number)


class Terminal:
    """Takes what two streams write, each write by itself."""

    def __init__(self) -> None:
        self.wrote: list[str] = []
        self.flushed = 0
        self.out, self.err = Stream(self), Stream(self)


class Stream(io.StringIO):
    """One of them."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(text)
        self._terminal.wrote.append(text)
        return len(text)

    def flush(self) -> None:
        self._terminal.flushed += 1


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def held(terminal: Terminal) -> _Held:
    return _Held([terminal.out, terminal.err])


@pytest.mark.parametrize(
    ("begins", "acts", "wrote"),
    [
        pytest.param("out", "o1 o2 of o3", ["12", "3"], id="an event reaches the terminal in one write"),
        pytest.param("out", "o1 e2 o3 of", ["1", "2", "3"], id="output to another stream keeps its order"),
        pytest.param("err", "e1 e2 o3", ["12", "3"], id="an event on the second stream is held too"),
        pytest.param("out", "o1 begin o2 of", ["1", "2"], id="an event that never ended is written before the next"),
        pytest.param("", "o1 o2", ["1", "2"], id="a stream that is not known is left alone"),
    ],
)
def test_an_event_is_held_until_it_ends(
    terminal: Terminal, held: _Held, begins: str, acts: str, wrote: list[str]
) -> None:
    streams = {"out": terminal.out, "err": terminal.err, "o": terminal.out, "e": terminal.err}
    held.begin(streams.get(begins) or io.StringIO())
    for act in acts.split():
        if act == "begin":
            held.begin(terminal.out)
        elif act == "of":
            terminal.out.flush()
        else:
            assert streams[act[0]].write(act[1]) == 1
    assert terminal.wrote == wrote
    with pytest.raises(TypeError):
        terminal.out.write(b"bytes")  # type: ignore[arg-type]


def test_a_new_process_holds_nothing_of_the_old_one(terminal: Terminal, held: _Held) -> None:
    held.begin(terminal.out)
    terminal.out.write("the old ones")

    def act() -> object:
        held.forget()
        terminal.out.write("new")
        terminal.out.flush()
        return terminal.wrote

    assert in_a_fork(act) == "['new']"
    terminal.out.flush()
    assert terminal.wrote == ["the old ones"]


def test_nothing_is_lost_that_threads_write_at_the_same_time(terminal: Terminal, held: _Held) -> None:
    count, threads = 300, 4

    def write(name: int) -> None:
        for number in range(count):
            if name == 0:
                held.begin(terminal.out)
            terminal.out.write(f"<{name}.{number}>")
            if name == 0:
                terminal.out.flush()

    running = [threading.Thread(target=write, args=(name,)) for name in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    terminal.out.flush()
    found = "".join(terminal.wrote)
    assert sorted(found.replace("><", "> <").split()) == sorted(
        f"<{name}.{number}>" for name in range(threads) for number in range(count)
    )
