from __future__ import annotations

import io

import pytest

from runner.sdk.devcluster.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_a_terminal_a_long_step_prints_a_line_every_30_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(stream, clock)
    with progress.step("kube-apiserver"):
        for second in range(65):
            clock.now = second
            progress.tick("building")
    assert stream.getvalue().splitlines()[1:3] == [
        "kube-apiserver ... 30 s building",
        "kube-apiserver ... 60 s building",
    ]


def test_on_a_terminal_one_line_changes(clock: Clock) -> None:
    stream = Terminal()
    progress = Progress(stream, clock)
    with progress.step("etcd"):
        clock.now = 1.0
        progress.tick("loading, 3 MiB")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert "\r\x1b[Ketcd ... 1 s loading, 3 MiB" in written
    assert written.endswith("\r\x1b[Ketcd: done in 1 s\n")


def test_a_step_that_fails_is_not_called_done(clock: Clock) -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress(stream, clock).step("etcd"):
        raise KeyboardInterrupt
    assert "done" not in stream.getvalue()
    assert stream.getvalue().endswith("etcd: stopped after 0 s\n")
