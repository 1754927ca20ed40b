from __future__ import annotations

from pathlib import Path

import pytest

from runner.engine.starter import ColdStarter
from runner.engine.warm.pool import Pool

pytestmark = pytest.mark.asyncio


async def test_it_is_known_when_a_run_was_not_forked_although_there_is_a_server(tmp_path: Path) -> None:
    pool = Pool(tmp_path, ColdStarter(), ())

    pool.learn({"A": "1"}, '{"plugins": []}\n{"unlike": "runs have other values of A than the fork server"}\n')

    assert pool.problem == "runs have other values of A than the fork server"
    await pool.close()


async def test_what_runs_learned_is_no_problem(tmp_path: Path) -> None:
    pool = Pool(tmp_path, ColdStarter(), ())

    pool.learn({"A": "1"}, '{"plugins": ["ansible.plugins.lookup.sequence"]}\n')

    assert pool.problem is None
    await pool.close()
