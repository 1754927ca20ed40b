from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from runner.core.engine import artifacts, retention
from runner.core.engine.retention import KeptRuns
from tests.kit.wait import patience

BIG = 1 << 20
KEEP = 20

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a run folder as a run leaves it, with a big file for each run that is kept."""

    def write(name: str, runs: int = 1, when: int = 0, namespace: str = "ns") -> Path:
        run_dir = tmp_path / "runner" / "g" / "v1" / "Kind" / namespace / name
        (run_dir / "env").mkdir(parents=True, exist_ok=True)
        (run_dir / "env" / "envvars").write_text("{}")
        for number in range(runs):
            run = run_dir / "artifacts" / f"run-{number}"
            run.mkdir(parents=True)
            (run / "stdout").write_bytes(b"x" * BIG)
            os.utime(run, (when + number, when + number))
        artifacts.point_latest(run_dir / "artifacts", f"run-{runs - 1}")
        os.utime(run_dir / "artifacts", (when, when))
        return run_dir

    return write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runner"


def runs_in(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "artifacts").glob("run-*"))


def ran(runs: KeptRuns, *folders: Path) -> None:
    """Begin and end a run in each folder."""
    for folder in folders:
        runs.begin(folder)
        runs.end(folder, KEEP)


def size_of(*folders: Path) -> int:
    return sum(map(retention.used, folders))


def test_the_limit_is_at_most_half_of_the_file_system(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(f_blocks=48, f_frsize=1 << 20)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    with capture_logs() as logs:
        limits = [KeptRuns(root, limit)._limit for limit in (0, 24 << 20, 1 << 30)]
    assert limits == [0, 24 << 20, 24 << 20]
    (line,) = logs
    assert (line["limit"], line["folder"]) == (24 << 20, str(root))


def test_older_runs_of_the_least_recently_run_objects_are_removed_first(make: Make, root: Path) -> None:
    runs = KeptRuns(root, 8 * BIG)
    folders = [make(name, 3) for name in ("one", "two", "three")]
    ran(runs, *folders)
    assert [len(runs_in(folder)) for folder in folders] == [1, 3, 3]
    assert runs_in(folders[0]) == ["run-2"]
    assert (folders[0] / "artifacts" / "latest").exists()
    assert runs.size == size_of(*folders) <= 8 * BIG


def test_whole_folders_are_removed_next_least_recently_run_objects_first(make: Make, root: Path) -> None:
    runs = KeptRuns(root, int(3.5 * BIG))
    folders = {name: make(name) for name in ("one", "two", "three", "four")}
    ran(runs, *(folders[name] for name in ("one", "two", "three", "one", "four")))
    assert {name for name, folder in folders.items() if folder.exists()} == {"one", "three", "four"}
    assert runs.size == size_of(*folders.values()) <= 3.5 * BIG


def test_a_namespace_that_keeps_many_runs_loses_them_before_a_namespace_that_keeps_few(make: Make, root: Path) -> None:
    runs = KeptRuns(root, int(6.5 * BIG))
    neighbour = make("one", 2, namespace="neighbour")
    ran(runs, neighbour)
    greedy = [make(name, 5, namespace="greedy") for name in ("one", "two", "three")]
    ran(runs, *greedy)
    assert len(runs_in(neighbour)) == 2
    assert [len(runs_in(folder)) for folder in greedy] == [1, 1, 1]
    assert runs.size == size_of(neighbour, *greedy) <= 6.5 * BIG


def test_if_all_folders_of_the_largest_namespace_are_in_use_the_next_one_loses_some(make: Make, root: Path) -> None:
    runs = KeptRuns(root, 5 * BIG)
    busy, idle, last = make("one", 4, namespace="busy"), make("one", 3, namespace="idle"), make("one")
    runs.begin(busy)
    ran(runs, busy)
    ran(runs, *(idle, last))
    assert (len(runs_in(busy)), idle.exists(), last.exists()) == (4, False, False)
    runs.end(busy, KEEP)
    assert runs.size == retention.used(busy) <= 5 * BIG


def test_a_folder_in_use_is_not_touched(make: Make, root: Path) -> None:
    runs = KeptRuns(root, BIG)
    busy, idle = make("busy", 3), make("idle", 3)
    runs.begin(busy)
    ran(runs, busy)
    runs.remove(busy)
    ran(runs, idle)
    assert len(runs_in(busy)) == 3
    assert not idle.exists()
    runs.end(busy, KEEP)
    runs.remove(busy)
    assert not busy.exists()
    assert runs.size == 0


def test_nothing_at_all_is_left_of_an_object_that_keeps_none(make: Make, root: Path) -> None:
    folder = make("one")
    runs = KeptRuns(root, 0)
    runs.begin(folder)
    runs.end(folder, artifacts.KEEP_NONE)
    assert not folder.parent.exists()


def test_folders_of_an_earlier_operator_count_and_are_removed_first(make: Make, root: Path) -> None:
    old, older, fresh = make("old", 2, when=200), make("older", 2, when=100), make("fresh", 2)
    runs = KeptRuns(root, int(4.5 * BIG))
    ran(runs, fresh)
    runs.survey()
    assert runs.size == size_of(old, older, fresh) <= 4.5 * BIG
    assert len(runs_in(fresh)) == 2
    runs.survey()
    assert runs.size == size_of(old, older, fresh)


def test_without_a_limit_nothing_is_measured(make: Make, root: Path) -> None:
    runs = KeptRuns(root, 0)
    folder = make("one", 3)
    runs.survey()
    ran(runs, folder)
    assert (runs.size, len(runs_in(folder))) == (0, 3)


@pytest.fixture
def undeletable(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Folders whose files belong to another user."""
    folders: set[Path] = set()

    def refusing(name: str) -> Callable[..., None]:
        act = getattr(artifacts, name)

        def run(folder: Path, *more: int) -> None:
            run_dir = folder.parent if name == "rotate" else folder
            if run_dir in folders:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(run_dir))
            act(folder, *more)

        return run

    for name in ("rotate", "remove"):
        monkeypatch.setattr(artifacts, name, refusing(name))
    return folders


def test_a_folder_that_cannot_be_removed_does_not_end_the_limit_for_others(
    make: Make, root: Path, undeletable: set[Path]
) -> None:
    runs = KeptRuns(root, int(2.5 * BIG))
    stuck = make("stuck", 3, namespace="stuck")
    undeletable.add(stuck)
    with capture_logs() as lines:
        ran(runs, stuck, make("one"), make("two"), make("three"), stuck)
    kept = {name for name in ("one", "two", "three") if (root / f"g/v1/Kind/ns/{name}").exists()}
    assert kept == {"two", "three"}
    assert stuck.exists()
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["folder"] for line in warnings] == [str(stuck)]
    undeletable.clear()
    ran(runs, stuck)
    assert len(runs_in(stuck)) <= 1
    assert runs.size <= 2.5 * BIG


@pytest.mark.lengthy
def test_a_long_removal_delays_only_the_next_run_of_the_same_object(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, may_end = threading.Event(), threading.Event()
    remove = artifacts.remove

    def slow(folder: Path) -> None:
        removing.set()
        assert may_end.wait(patience())
        remove(folder)

    monkeypatch.setattr(artifacts, "remove", slow)
    runs = KeptRuns(root, BIG // 2)
    one, two = make("one"), make("two")
    runs.begin(one)
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(runs.end, one, KEEP)
        assert removing.wait(patience())
        again = pool.submit(runs.begin, one)
        pool.submit(runs.begin, two).result(30)
        pool.submit(runs.end, two, KEEP).result(30)
        assert not again.done()
        assert one.exists()
        may_end.set()
        again.result(30)
        assert not one.exists()
        ending.result(30)
    assert not two.exists()
