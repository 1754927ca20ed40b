"""Files of a run in a pod at the operator."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from runner.engines.pod import spool
from runner.engines.pod.spool import Frame, Space, Spool
from tests.kit.forks import in_a_fork

LINES = [Frame(1, b'{"a": 1}', end=False), Frame(2, b"", end=False), Frame(3, b"{}", end=True)]


def test_an_operator_finds_the_lines_that_its_predecessor_applied(tmp_path: Path) -> None:
    for line in LINES:
        Spool(tmp_path / "run", "one").add(line)
    assert list(Spool(tmp_path / "run", "one").lines()) == LINES
    assert list(Spool(tmp_path / "run", "other").lines()) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_an_incomplete_last_line_is_dropped_and_written_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    (file,) = [tmp_path / ".received-one"]
    spool.add(LINES[0])
    whole = file.read_bytes()
    spool.add(LINES[2])
    size = len(file.read_bytes())
    for cut in range(len(whole) + 1, size):
        file.write_bytes(file.read_bytes()[:cut])
        spool = Spool(tmp_path, "one")
        assert list(spool.lines()) == LINES[:1]
        assert file.read_bytes() == whole
        spool.add(LINES[2])
    assert list(spool.lines()) == [LINES[0], LINES[2]]


@pytest.mark.parametrize("room", [0, 3, 40])
def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, room: int) -> None:
    def act() -> object:
        spool = Spool(tmp_path, "one")
        spool.add(LINES[0])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / ".received-one").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, size + room))
        try:
            spool.add(Frame(2, b"x" * 100, end=False))
        except OSError:
            return list(spool.lines()) == LINES[:1]
        return "written"

    assert in_a_fork(act) == "True"


def test_a_line_that_an_operator_did_not_survive_is_marked_for_the_next_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    for line in LINES[:2]:
        spool.add(line)
    spool.mark(2)
    assert Spool(tmp_path, "one").marked == 2
    spool.mark(0)
    assert Spool(tmp_path, "one").marked == 0
    spool.mark(1)
    assert Spool(tmp_path, "two").marked == 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_needs_more_than_its_share_of_the_space_fails_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_OF_LINE", 0)
    space = Space(1000)
    greedy, other = (Spool(tmp_path / name, "one", space) for name in ("greedy", "other"))
    greedy.add(Frame(1, b"x" * 800, end=False))
    other.add(Frame(1, b"x" * 300, end=False))
    with pytest.raises(OSError, match="more than its share"):
        greedy.add(Frame(2, b"x", end=False))
    other.add(Frame(2, b"x" * 100, end=False))
    greedy.remove()
    other.add(Frame(3, b"x" * 500, end=False))
    assert [line.number for line in Spool(tmp_path / "other", "one").lines()] == [1, 2, 3]


def test_many_small_lines_need_space_too(tmp_path: Path) -> None:
    lines = Spool(tmp_path, "one", Space(20_000))
    for number in range(1, 10):
        lines.add(Frame(number, b"", end=False))
    with pytest.raises(OSError, match="more than its share"):
        lines.add(Frame(10, b"", end=False))
