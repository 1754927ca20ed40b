from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from runner.core.engine import artifacts, run_dir, run_root
from runner.core.engine.artifacts import KeptRuns
from runner.core.engine.run_root import RunRoot
from tests.kit.wait import patience, until

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
            (run / "status").write_text("successful")
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
    return sum(map(artifacts.used, folders))


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
    assert runs.size == artifacts.used(busy) <= 5 * BIG


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that moves the wall clock on by some seconds."""
    moved = [0.0]
    monkeypatch.setattr(artifacts, "time", SimpleNamespace(time=lambda: time.time() + sum(moved)))
    return moved.append


def deleted(root: Path, namespace: str = "ns") -> set[str]:
    """Return the names of deleted objects whose run is kept."""
    return {path.name for path in (root / artifacts.DELETED / "g/v1/Kind" / namespace).glob("*")}


@pytest.mark.parametrize("limit", [0, 10 * BIG])
def test_of_a_deleted_object_only_the_output_of_the_last_run_is_kept_for_some_minutes(
    make: Make, root: Path, clock: Callable[[float], None], limit: int
) -> None:
    runs, folder = KeptRuns(root, limit), make("one", 3)
    (folder / "env/kubeconfig").write_text("a token")
    (folder / "env/envvars").write_text("a variable")
    (folder / "facts").mkdir()
    (folder / "facts/host").write_text("a fact")
    ran(runs, folder)
    runs.retire(folder)
    kept = root / artifacts.DELETED / "g/v1/Kind/ns/one"
    files = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    assert files == {"artifacts/run-2/stdout", "artifacts/run-2/status", "env/envvars"}
    assert (kept / "env/envvars").read_text() == ""
    assert not folder.parent.exists()
    assert runs.size == (size_of(kept) if limit else 0)
    assert {path.stat().st_mode & 0o777 for path in (kept, kept / "env", kept / "artifacts")} == {0o700}
    clock(artifacts._DELETED_FOR - 60)
    runs.expire()
    assert kept.exists()
    clock(120)
    runs.expire()
    assert (kept.exists(), runs.size) == (False, 0)


def _broken(folder: Path) -> None:
    (folder / "artifacts/run-0/status").unlink()


def _no_run(folder: Path) -> None:
    shutil.rmtree(folder / "artifacts")


def _blocked(folder: Path) -> None:
    (folder.parents[4] / artifacts.DELETED).write_text("")  # a folder cannot be made, as on a full disk


@pytest.mark.parametrize("spoil", [_broken, _no_run, _blocked])
def test_of_a_run_that_did_not_end_or_cannot_be_moved_nothing_is_kept(
    make: Make, root: Path, spoil: Callable[[Path], None]
) -> None:
    runs, folder = KeptRuns(root, 0), make("one")
    spoil(folder)
    runs.retire(folder)
    assert list(artifacts.run_folders(root)) == []
    assert not folder.exists()


def test_the_next_object_of_the_name_replaces_the_run_only_with_its_own(make: Make, root: Path) -> None:
    runs = KeptRuns(root, 0)
    runs.retire(make("one"))
    unfinished = make("one", 2)
    (unfinished / "artifacts/run-1/status").unlink()
    runs.retire(unfinished)
    kept = root / artifacts.DELETED / "g/v1/Kind/ns/one"
    assert runs_in(kept) == ["run-0"]
    runs.retire(make("one", 3))
    assert runs_in(kept) == ["run-2"]


def test_a_namespace_that_deletes_many_objects_loses_their_runs_and_no_other_namespace_does(
    make: Make, root: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "_MOST_DELETED", 3)
    runs = KeptRuns(root, 0)
    runs.retire(make("first", namespace="neighbour"))
    for number in range(5):
        clock(1)
        runs.retire(make(f"greedy-{number}"))
    assert deleted(root, "neighbour") == {"first"}
    assert deleted(root) == {"greedy-3", "greedy-4"}


def test_runs_of_deleted_objects_go_before_those_of_others(make: Make, root: Path) -> None:
    runs = KeptRuns(root, int(4.5 * BIG))
    runs.retire(make("gone"))
    folders = [make(name, 2) for name in ("one", "two")]
    ran(runs, *folders)
    assert deleted(root) == set()
    assert [len(runs_in(folder)) for folder in folders] == [2, 2]
    assert runs.size == size_of(*folders)


@pytest.mark.parametrize("limit", [0, 10 * BIG])
def test_a_restart_neither_prolongs_nor_forgets_what_is_kept(
    make: Make, root: Path, clock: Callable[[float], None], limit: int
) -> None:
    before = KeptRuns(root, limit)
    before.retire(make("old"))
    clock(600)
    before.retire(make("new"))
    mark = root / artifacts.DELETED / "g/v1/Kind/ns/new/env/envvars"
    os.utime(mark, (time.time() + 600, time.time() + 600))
    clock(400)
    runs = KeptRuns(root, limit)
    runs.survey()
    assert deleted(root) == {"new"}
    assert runs.size == (size_of(root / artifacts.DELETED / "g/v1/Kind/ns/new") if limit else 0)
    clock(600)
    runs.expire()
    assert (deleted(root), runs.size) == (set(), 0)


async def test_an_operator_without_further_runs_removes_the_run_of_a_deleted_object_too(
    make: Make, root: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_root, "_EXPIRE_EVERY", 0.01)
    operator, folder = RunRoot(root), make("one")
    await operator.reap_leftovers()
    operator.kept.retire(folder)
    assert deleted(root) == {"one"}
    clock(artifacts._DELETED_FOR + 1)
    await until(lambda: not deleted(root), "the run of the deleted object to go")
    await operator.close()


@pytest.mark.parametrize("undeletable", ["one", "two"])
async def test_files_of_another_user_keep_no_operator_from_starting(
    make: Make, root: Path, undeletable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared = []

    def clear(folder: Path) -> None:
        if folder.name == undeletable:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(folder / "tmp"))
        cleared.append(folder.name)

    monkeypatch.setattr(run_dir, "clear", clear)
    for name in ("one", "two"):
        (make(name) / "env" / "extravars").write_text("{}")
    operator = RunRoot(root)
    with capture_logs() as logs:
        await operator.reap_leftovers()
    await operator.close()
    assert {*cleared, undeletable} == {"one", "two"}
    (warning,) = logs
    assert f"{undeletable}/tmp" in warning["error"]
