"""Events on disk: a file for each, whole or not at all."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from runner.engine import child
from tests.forks import in_a_fork


def test_an_event_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "1-event.json"
    child._write(str(file), b"{}")
    assert file.read_bytes() == b"{}"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("room", [0, 5])
def test_an_event_that_does_not_fit_leaves_nothing(tmp_path: Path, room: int) -> None:
    def act() -> object:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        child._write(str(tmp_path / "1-event.json"), b"longer than that")
        return list(tmp_path.iterdir())

    assert in_a_fork(act) == "[]"
