from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from runner.sdk.devcluster.orders import ParentGoneError, ParentProcess


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it


def test_lines_come_whole_however_they_were_cut(pipe: tuple[int, int]) -> None:
    owner = ParentProcess(pipe[0], os.getppid())
    os.write(pipe[1], b'{"do": "st')
    assert owner.lines(1) == []
    os.write(pipe[1], b'op"}\n{"do"')
    assert owner.lines(1) == ['{"do": "stop"}']


def test_an_empty_pipe_has_no_lines(pipe: tuple[int, int]) -> None:
    owner = ParentProcess(pipe[0], os.getppid())
    assert owner.lines(0.01) == []
    owner.check()


def test_another_parent_means_that_the_owner_died_though_the_pipe_is_open(pipe: tuple[int, int]) -> None:
    with pytest.raises(ParentGoneError, match="parent process exited"):
        ParentProcess(pipe[0], os.getppid() + 1).check()


def test_a_detached_cluster_stays_when_its_owner_goes(pipe: tuple[int, int]) -> None:
    owner = ParentProcess(pipe[0], os.getppid() + 1, detached=True)
    os.close(pipe[1])
    assert owner.lines(0.01) == []
    owner.check()


def test_a_detached_cluster_still_ends_by_signal(pipe: tuple[int, int]) -> None:
    owner = ParentProcess(pipe[0], os.getppid(), detached=True)
    owner.stop("SIGTERM")
    with pytest.raises(ParentGoneError, match="SIGTERM"):
        owner.check()


def test_waiting_for_the_first_line_ends_when_the_parent_process_ends(pipe: tuple[int, int]) -> None:
    owner = ParentProcess(pipe[0], os.getppid())
    os.close(pipe[1])
    with pytest.raises(ParentGoneError):
        owner.first_line()
