"""The loop of the fork server that forks runs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner.engines.warm import messages
from runner.engines.warm.server import server
from tests.kit.wait import patience

RUNS = 8

Client = Callable[[socket.socket, threading.Event], None]
Serve = Callable[..., list[int]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve requests of a client to their end; return after how many runs the memory was prepared for forks.

    With `at_once` the client sends everything before that.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    runs: list[object] = []
    prepared: list[int] = []
    is_prepared = threading.Event()

    def fork(*arguments: object) -> int:
        runs.append(arguments)
        return os.getpid()

    def prepare() -> None:
        prepared.append(len(runs))
        is_prepared.set()

    monkeypatch.setattr(server, "_fork", fork)
    monkeypatch.setattr(server, "_share_memory", prepare)

    def run(client: Client, *, at_once: bool = False) -> list[int]:
        def act() -> None:
            client(ours, is_prepared)
            ours.shutdown(socket.SHUT_WR)

        acting = threading.Thread(target=act)
        acting.start()
        if at_once:
            acting.join()
        base: Any = None
        server._serve(theirs, base, iter(()), shares=True)
        acting.join()
        assert len(runs) == RUNS
        return prepared

    with ours, theirs:
        yield run


def request(connection: socket.socket) -> None:
    connection.send(messages.RUN)
    assert int(connection.recv(messages.LONGEST)) == os.getpid()


def one_by_one(connection: socket.socket, is_prepared: threading.Event) -> None:
    for number in range(1, RUNS + 1):
        request(connection)
        if number == server._RUNS_BEFORE_SHARING:
            assert is_prepared.wait(patience())


def test_memory_is_prepared_once_after_some_runs(serve: Serve) -> None:
    assert serve(one_by_one) == [server._RUNS_BEFORE_SHARING]


def test_no_request_waits_for_the_preparation_of_memory(serve: Serve) -> None:
    def together(connection: socket.socket, _: threading.Event) -> None:
        for _run in range(RUNS):
            connection.send(messages.RUN)

    # The end of the requests waits as well: a server that ends prepares nothing.
    assert serve(together, at_once=True) == []


def test_a_run_waits_for_at_most_one_step_of_the_preparation_which_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    base: Any = None
    steps: list[str] = []

    def fork(*_: object) -> int:
        steps.append("run")
        return os.getpid()

    def preparation() -> Iterator[None]:
        steps.append("first")
        ours.send(messages.RUN)
        yield
        steps.append("second")
        yield
        steps.append("third")
        ours.shutdown(socket.SHUT_WR)
        yield
        steps.append("after the end of the operator")

    monkeypatch.setattr(server, "_fork", fork)
    with ours, theirs:
        server._serve(theirs, base, preparation(), shares=False)

    assert steps == ["first", "run", "second", "third"]
