"""Tasks of the warm engine need no worker where nothing but known code runs, and get one where anything else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.engine.job import Outcome
from tests.integration.engine.runs import ENGINE
from tests.kit.engines import ProcessEngines

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(ENGINE != "warm", reason="what forked runs do"),
]

FILTER = """
class FilterModule:
    def filters(self):
        return {"own": lambda value: value}
"""
PID = "lookup('file', '/proc/self/stat').split()[0]"
"""The process that evaluates this."""


@pytest.fixture
def tasks(
    engine: tuple[ProcessEngines, Path], tmp_path: Path, runs_of: Callable[[ProcessEngines, Path, Path], Runs]
) -> Runs:
    (tmp_path / "filter_plugins").mkdir()
    (tmp_path / "filter_plugins" / "own.py").write_text(FILTER, encoding="utf-8")
    return runs_of(*engine, tmp_path)


async def said(runs: Runs, text: str) -> dict[str, Any]:
    """Run tasks; return what each debug task says, by its name."""
    ran = await runs.run(runs.tasks(text))
    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    results = [event["event_data"] for event in ran.of("runner_on_ok")]
    return {each["task"]: each["res"]["msg"] for each in results if each["task_action"].endswith("debug")}


async def test_tasks_of_known_code_share_one_process_and_others_have_their_own(tasks: Runs) -> None:
    seen = await said(
        tasks,
        f"""
- {{name: first, debug: {{msg: "{{{{ {PID} }}}}"}}}}
- {{name: second, debug: {{msg: "{{{{ {PID} | string }}}}"}}}}
- {{name: own filter, debug: {{msg: "{{{{ {PID} | own }}}}"}}}}
- {{name: pipe, debug: {{msg: "{{{{ {PID} + lookup('pipe', 'true') }}}}"}}}}
- {{name: limited, debug: {{msg: "{{{{ {PID} }}}}"}}, timeout: 20}}
""",
    )

    assert seen["first"] == seen["second"]
    assert len({seen[name] for name in ("first", "own filter", "pipe", "limited")}) == 4


async def test_a_template_that_changes_a_value_changes_it_for_itself_alone(tasks: Runs) -> None:
    seen = await said(
        tasks,
        """
- {name: fact, set_fact: {kept: [1, 2]}}
- {name: changing, debug: {msg: "a{{ kept.append(3) }}{{ hostvars['localhost']['kept'].append(4) }}"}}
- {name: kept, debug: {msg: "{{ kept }}"}}
""",
    )

    assert seen["kept"] == [1, 2]


async def test_a_task_with_unknown_code_after_its_module_continues_in_a_worker(tasks: Runs) -> None:
    seen = await said(
        tasks,
        """
- name: counted
  shell: "echo x >> {{ playbook_dir }}/count"
  loop: [1, 2]
  register: it
  changed_when: (item | own) == 2
- {name: changed, debug: {msg: "{{ it.results | map(attribute='changed') }}"}}
- {name: count, debug: {msg: "{{ lookup('file', playbook_dir ~ '/count').splitlines() | length }}"}}
""",
    )

    assert seen["changed"] == [False, True]
    assert int(seen["count"]) == 2
