"""Tiny real roles and playbooks, run by the real engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from runner.agent import process_tree
from runner.engine import processes
from runner.engine.engines import EngineSettings
from runner.engine.execution_log import ExecutionLog
from runner.engine.executions import Executions
from runner.engine.run_engine import RunEngine
from tests.integration.engine.runs import DEFECTS, ENGINE, WITHOUT, Runs


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RunEngine, Path]]:
    root = tmp_path_factory.mktemp("engine") / "runner"
    engine = RunEngine(root, EngineSettings(ENGINE, WITHOUT, 0))
    yield engine, root
    problem = engine.starters.pool.problem
    await engine.close(0)
    assert problem is None, "not every run was forked"


@pytest.fixture(autouse=True)
def _no_defects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose runs met a defect of a shortcut; a test that plants one removes it from `DEFECTS`."""
    DEFECTS.clear()
    add = ExecutionLog.add

    def noted(self: ExecutionLog, job: str, executions: Executions) -> None:
        DEFECTS.extend(executions.defects)
        add(self, job, executions)

    monkeypatch.setattr(ExecutionLog, "add", noted)
    yield
    assert DEFECTS == [], "\n".join(DEFECTS)


@pytest.fixture
def runs(engine: tuple[RunEngine, Path], tmp_path: Path) -> Runs:
    return Runs(*engine, tmp_path / "operator", tmp_path.name)


@pytest.fixture(scope="session")
def runs_of() -> Callable[[RunEngine, Path, Path], Runs]:
    """Starts runs with an engine of the test's own."""

    def make(engine: RunEngine, root: Path, content: Path) -> Runs:
        return Runs(engine, root, content, "default")

    return make


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
