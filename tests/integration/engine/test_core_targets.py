"""Integration targets of ansible-core have the same results on the warm engine as with plain ansible-playbook.

These are few of those that `make test-parity` runs (`tests/parity`); together they use each shortcut.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.engine.runs import ENGINE
from tests.kit.engines import ProcessEngines
from tests.parity import targets
from tests.parity.ways import ParityError, Ways

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(ENGINE != "warm", reason="compares the warm engine with plain Ansible"),
    # All cases share one fork server.
    pytest.mark.xdist_group("core-targets"),
]

_RESULTS = {
    "include_import/valid_include_keywords/playbook.yml": 9,
    "lookup_vars": 11,
    "loop_control/extended.yml": 5,
    "register/can_register.yml": 4,
    "tasks/playbook.yml": 3,
}
"""Cases that run quickly and need no inventory of their own, and how many task results each has at least."""


@pytest.fixture(scope="module")
def ways(engine: tuple[ProcessEngines, Path], tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(targets.folder(), tmp_path_factory.mktemp("targets"), engine[0], quick=True)


@pytest.mark.full
@pytest.mark.parametrize("name", _RESULTS)
async def test_a_target_of_ansible_core_has_the_results_of_plain_ansible(name: str, ways: Ways) -> None:
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # the name of the test is no reason for another fork server
    (case,) = (case for case in targets.cases(ways.root) if case.name == name)

    assert await ways.compare(case, starts_ansible=False) >= _RESULTS[name]


@pytest.mark.parametrize("change", [{"status": "failed"}, {"result": {"changed": True}}])
async def test_a_result_that_only_the_warm_engine_has_is_a_difference(
    change: dict[str, object], ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = (case for case in targets.cases(ways.root) if case.name == "register/can_register.yml")
    shown: dict[str, object] = {"status": "ok", "task": "ping", "result": {"changed": False}}

    def observed(*results: dict[str, object]) -> dict[str, object]:
        return {"events": [], "files": {}, "result": {}, "results": {"testhost": list(results)}, "recap": {}}

    async def warm(*_: object) -> dict[str, object]:
        return observed(shown, {**shown, **change})

    monkeypatch.setattr(Ways, "_plain", lambda *_: observed(shown, shown))
    monkeypatch.setattr(Ways, "_on", warm)

    with pytest.raises(ParityError, match="differ"):
        await ways.compare(case, starts_ansible=False)
