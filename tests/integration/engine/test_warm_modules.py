"""Modules of the warm engine run without a new interpreter where that is possible, and only there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from runner.core.engine.job import Outcome
from tests.kit.engines import ProcessEngines

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

WHENCE = """
#!/usr/bin/python
import os

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"end_parent": {"type": "bool"}})
with open(f"/proc/{os.getppid()}/comm") as file:
    parent = file.read().strip()
if module.params["end_parent"]:
    os.kill(os.getppid(), 9)
module.exit_json(parent=parent, there=os.environ.get("THERE"))
""".lstrip()
HELPER = "import os\n\nPROCESS = os.getpid()\n"
LOADED_BEFORE = """
#!/usr/bin/python
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.own.short.plugins.module_utils.helper import PROCESS

module = AnsibleModule(argument_spec={})
module.exit_json(before=os.getpid() != PROCESS)
""".lstrip()
VERSIONED = """
#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

AnsibleModule(argument_spec={}).exit_json(version="old")
""".lstrip()
ZYGOTE, SHELL = "ansible-playboo", "sh"
"""The names of the processes that start a module, as the kernel cuts them."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def warm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ProcessEngines, Path]]:
    root = tmp_path_factory.mktemp("warm") / "runner"
    engine = ProcessEngines(root)
    yield engine, root
    await engine.close(0)


@pytest.fixture
def modules(
    warm: tuple[ProcessEngines, Path], tmp_path: Path, runs_of: Callable[[ProcessEngines, Path, Path], Runs]
) -> Runs:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "whence.py").write_text(WHENCE, encoding="utf-8")
    return runs_of(*warm, tmp_path)


async def said(runs: Runs, tasks: str, **changes: Any) -> list[Any]:
    """Run tasks; return what the debug tasks among them say."""
    ran = await runs.run(runs.tasks(tasks), **changes)
    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    results = [event["event_data"] for event in ran.of("runner_on_ok")]
    return [result["res"]["msg"] for result in results if result["task_action"].endswith("debug")]


async def test_a_module_is_forked_from_the_zygote_of_its_run(modules: Runs) -> None:
    seen = await said(
        modules,
        """
- {whence: , environment: {THERE: "ü"}, register: it}
- debug: {msg: "{{ [it.parent, it.there] }}"}
""",
    )

    assert seen == [[ZYGOTE, "ü"]]


async def test_a_collection_s_module_with_a_short_name_is_preloaded_for_the_next_run(modules: Runs) -> None:
    playbook = modules.playbook("""
- hosts: localhost
  gather_facts: false
  collections: [own.short]
  tasks:
    - {name: loaded, loaded_before: , register: it}
    - {name: said, debug: {msg: "{{ it.before }}"}}
""")
    plugins = modules.root / "own/ansible_collections/own/short/plugins"
    for file, text in (("modules/loaded_before.py", LOADED_BEFORE), ("module_utils/helper.py", HELPER)):
        (plugins / file).parent.mkdir(parents=True, exist_ok=True)
        (plugins / file).write_text(text, encoding="utf-8")
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(modules.root / "own")}

    before = await modules.run(playbook, environment=environment)
    await modules.engine.settle()
    afterwards = await modules.run(playbook, environment=environment)

    assert (before.said("said"), afterwards.said("said")) == (False, True)


async def test_a_preloaded_module_that_the_run_changes_is_run_as_changed(modules: Runs) -> None:
    file = modules.root / "own/ansible_collections/own/changed/plugins/modules/versioned.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(VERSIONED, encoding="utf-8")
    playbook = modules.tasks(f"""
- {{own.changed.versioned: , register: first}}
- copy: {{content: "{{{{ lookup('file', '{file}') | replace('old', 'new') }}}}", dest: "{file}"}}
- {{own.changed.versioned: , register: second}}
- {{name: said, debug: {{msg: "{{{{ [first.version, second.version] }}}}"}}}}
""")
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(modules.root / "own")}
    await modules.run(playbook, environment=environment)
    file.write_text(VERSIONED, encoding="utf-8")
    await modules.engine.settle()

    ran = await modules.run(playbook, environment=environment)

    assert ran.said("said") == ["old", "new"]


async def test_a_loop_whose_zygote_is_killed_continues_with_the_next_item(modules: Runs) -> None:
    seen = await said(
        modules,
        """
- {whence: {end_parent: "{{ item == 1 }}"}, loop: [1, 2, 3], register: it}
- debug: {msg: "{{ it.results | map(attribute='parent') }}"}
""",
    )

    assert seen == [[ZYGOTE, SHELL, SHELL]]
