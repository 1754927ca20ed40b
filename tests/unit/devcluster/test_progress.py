from __future__ import annotations

import io

import pytest

from runner.sdk.devcluster.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_long_step_prints_a_line_every_30_seconds() -> None:
    stream, seconds = io.StringIO(), [0.0]
    progress = Progress(stream, lambda: seconds[-1])
    with progress.step("kube-apiserver"):
        for second in range(65):
            seconds.append(second)
            progress.tick("building")
    said = ["kube-apiserver ... 30 s building", "kube-apiserver ... 60 s building"]
    assert stream.getvalue().splitlines()[1:3] == said


def test_on_a_terminal_one_line_changes() -> None:
    stream, seconds = Terminal(), [0.0]
    progress = Progress(stream, lambda: seconds[-1])
    with progress.step("etcd"):
        seconds.append(1.0)
        progress.tick("loading, 3 MiB")
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert "\r\x1b[Ketcd ... 1 s loading, 3 MiB" in written
    assert written.endswith("\r\x1b[Ketcd: done in 1 s\n")


def test_a_step_that_fails_is_not_called_done() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress(stream, lambda: 0.0).step("etcd"):
        raise KeyboardInterrupt
    assert "done" not in stream.getvalue()
    assert stream.getvalue().endswith("etcd: stopped after 0 s\n")
