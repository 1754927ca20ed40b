"""Tiny real roles and playbooks, run by the real engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from runner.agent import process_tree
from runner.core.engine import processes
from runner.engines.warm import task_record
from tests.integration.engine.runs import ENGINE, WITHOUT, Runs
from tests.kit.engines import ProcessEngines
from tests.kit.run_notes import kept


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ProcessEngines, Path]]:
    root = tmp_path_factory.mktemp("engine") / "runner"
    engine = ProcessEngines(root, ENGINE, WITHOUT)
    yield engine, root
    problem = engine.pool.problem
    await engine.close(0)
    assert problem is None, "not every run was forked"


@pytest.fixture(scope="session", autouse=True)
def notes() -> Iterator[list[str]]:
    """Have forked runs record how they execute their tasks, and keep their notes."""
    with pytest.MonkeyPatch.context() as patched, kept() as notes:
        patched.setenv(task_record.RECORDED, "1")
        yield notes


@pytest.fixture
def planted_defects() -> list[str]:
    """Return the defects that a test expects: parts of their tracebacks."""
    return []


@pytest.fixture(autouse=True)
def _no_defects(notes: list[str], planted_defects: list[str]) -> Iterator[None]:
    """Fail a test whose runs met a defect of a shortcut that it did not plant."""
    notes.clear()
    yield
    found = task_record.defects("\n".join(notes))
    assert [defect for defect in found if not any(each in defect for each in planted_defects)] == []


@pytest.fixture
def runs(engine: tuple[ProcessEngines, Path], tmp_path: Path, notes: list[str]) -> Runs:
    return Runs(*engine, tmp_path / "operator", tmp_path.name, notes)


@pytest.fixture(scope="session")
def runs_of(notes: list[str]) -> Callable[[ProcessEngines, Path, Path], Runs]:
    """Starts runs with an engine of the test's own."""

    def make(engine: ProcessEngines, root: Path, content: Path) -> Runs:
        return Runs(engine, root, content, "default", notes)

    return make


@pytest_asyncio.fixture(loop_scope="session")
async def own(runs_of: Callable[[ProcessEngines, Path, Path], Runs], tmp_path: Path) -> AsyncIterator[Runs]:
    """Runs with an engine of the test's own."""
    engine = ProcessEngines(tmp_path / "runner")
    yield runs_of(engine, tmp_path / "runner", tmp_path / "operator")
    await engine.close(0)


@pytest.fixture(scope="session")
def processes_of() -> Callable[[Path], list[int]]:
    """Find every process, zombies aside, that a run below a root started, by the marker it inherited."""

    def find(root: Path) -> list[int]:
        prefix = processes.run_id(root, "").partition(":")[0]
        return [
            pid
            for pid, process in process_tree.table().items()
            if not process.zombie and (processes.marker(pid) or "").startswith(f"{prefix}:")
        ]

    return find


@pytest.fixture
def own_zombies() -> Callable[[], list[int]]:
    """Find the zombies since the start of the test that this process should have reaped.

    They are of runs, which have sessions of their own. A fork server that was replaced may just be ending, and is
    waited for by asyncio.
    """

    def find() -> list[int]:
        own, session = os.getpid(), os.getsid(0)
        return [p.pid for p in process_tree.table().values() if p.zombie and p.parent == own and p.session != session]

    # This process inherits orphans, so that programs of earlier tests can be among its children.
    earlier = set(find())
    return lambda: [pid for pid in find() if pid not in earlier]
