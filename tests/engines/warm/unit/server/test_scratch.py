"""What fork servers need on disk goes with them, or with the next operator."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.agent import process_tree
from runner.engines.warm.messages import Load
from runner.engines.warm.server import scratch
from runner.engines.warm.server.client import Server, ServerError


def test_folders_of_a_killed_operator_are_removed_and_those_of_a_live_one_are_not(
    tmp_path: Path,
) -> None:
    ours = scratch.make(tmp_path)
    own = process_tree.read(os.getpid())
    assert own is not None
    of_the_dead = tmp_path / f".warm-{own.pid}-{own.start - 1}-abc"
    (of_the_dead / "TMPDIR").mkdir(parents=True)
    scratch.remove_abandoned(tmp_path, process_tree.table())
    assert list(tmp_path.iterdir()) == [ours]


def test_a_folder_that_cannot_be_removed_keeps_no_operator_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmtree = shutil.rmtree

    def refusing(path: Path) -> None:
        if path.name.endswith("-one"):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        rmtree(path)

    for name in ("one", "two", "three"):
        (tmp_path / f".warm-1-1-{name}" / "some").mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", refusing)
    with capture_logs() as logs:
        scratch.remove_abandoned(tmp_path, process_tree.table())
    assert [path.name for path in tmp_path.iterdir()] == [".warm-1-1-one"]
    assert ".warm-1-1-one" in logs[0]["error"]


def test_the_folder_of_a_server_that_cannot_be_started_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(ServerError):
        asyncio.run(Server.start({}, tmp_path, Load()))
    assert list(tmp_path.iterdir()) == []
