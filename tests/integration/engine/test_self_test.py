"""The fork server's self-test: defects are planted, and runs succeed without the shortcuts that they break."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible
import pytest
from structlog.testing import capture_logs

from bench import symbols
from hack import next_core
from runner.core.engine.job import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

COLLECTIONS = Path(__file__).parents[3] / "runner" / "collections"
ON_IMPORT = """
import importlib.abc, importlib.machinery, sys

class Planter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            plant(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Planter())
"""
REPLACED_WITHOUT_READING = {"_term", "glob", "iter_stack"}
"""Names that a shortcut sets, and does not read: Ansible without them is not changed by that."""

Plant = Callable[[str, str], None]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Have a function `plant` changed a Python module whenever a process of a run or a server has imported it."""

    def write(module: str, code: str) -> None:
        folder = tmp_path / "planted"
        folder.mkdir()
        text = textwrap.dedent(code) + ON_IMPORT.format(module=module)
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(folder))

    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(COLLECTIONS))
    return write


async def test_a_planted_defect_is_logged_once_and_ends_no_run(
    plant: Plant, own: Any, planted_defects: list[str]
) -> None:
    planted_defects.append("TypeError: memoryview")
    plant(
        "runner.engines.warm.modules.payload",
        """
        def plant(module):
            take = module._Zip.writestr
            def writestr(self, info, data):
                if info.filename.startswith("ansible_collections"):
                    memoryview("")  # what ansible-core before 2.21 writes
                return take(self, info, data)
            module._Zip.writestr = writestr
        """,
    )
    playbook = own.tasks("- {name: of a collection, operator_sdk.util.requeue_after: {time: 1h}}\n- {stat: {path: /}}")

    with capture_logs() as lines:
        ran = await own.run(playbook)
        again = await own.run(playbook)

    assert ran.result.outcome is again.result.outcome is Outcome.SUCCEEDED
    assert ran.ways == {
        "forked_worker: defect": 1,
        "new_interpreter: defect": 1,
        "forked_module": 1,
        "playbook_process": 1,
    }
    logged = [line for line in lines if line["log_level"] == "error"]
    assert ["TypeError: memoryview" in line["traceback"] for line in logged] == [True]
    warnings = [line["problem"] for line in lines if line["log_level"] == "warning" and "problem" in line]
    assert any("operator_sdk.util.requeue_after" in problem and "defect" in problem for problem in warnings)
    assert "requeue_after" in own.engine.pool.shortfalls()["self-test"]


@pytest.mark.parametrize(
    ("shortcut", "module", "ways"),
    [
        ("tasks", "runner.engines.warm.patches.tasks", {"forked_module"}),
        pytest.param(
            "modules",
            "runner.engines.warm.modules.preimport",
            {"forked_worker: several_hosts", "playbook_process"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "copies",
            "runner.engines.warm.patches.copies",
            {"forked_module", "playbook_process"},
            marks=pytest.mark.nightly,
        ),
    ],
)
async def test_a_symbol_that_is_gone_disables_one_shortcut_and_runs_succeed(
    shortcut: str, module: str, ways: set[str], plant: Plant, own: Any
) -> None:
    plant(module, 'def plant(module):\n    raise ImportError("cannot import name StrategyBase")\n')

    with capture_logs() as lines:
        ran = await own.run(own.tasks("- {stat: {path: /}}\n- {debug: {msg: said}}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.ways.keys() == ways
    assert [line["shortcut"] for line in lines if "shortcut" in line] == [shortcut]
    assert {name for name in own.engine.pool.shortfalls() if name != "self-test"} == {shortcut}
    assert own.engine.pool.problem is None


async def test_a_shortcut_that_makes_the_playbook_fail_disables_all_and_runs_succeed(plant: Plant, own: Any) -> None:
    plant(
        "runner.engines.warm.patches.commands",
        """
        def plant(module):
            def install():
                from ansible.plugins.action import ActionBase
                def execute_module(*_, **__):
                    raise RuntimeError("a signature has changed")
                ActionBase._execute_module = execute_module
            module.install = install
        """,
    )

    ran = await own.run(own.tasks("- {stat: {path: /}}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.ways == {}, own.engine.pool.problem
    found = own.engine.pool.shortfalls()
    assert {"commands", "modules", "tasks"} <= found.keys()
    assert "a signature has changed" in found["modules"]


async def test_the_self_test_has_none_of_the_effects_that_a_project_configured(
    tmp_path: Path, own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = """
        import os
        from ansible.plugins.callback import CallbackBase

        class CallbackModule(CallbackBase):
            CALLBACK_NAME = "effects"

            def v2_playbook_on_start(self, playbook):
                with open(os.environ["EFFECTS"], "a") as file:
                    file.write(os.path.basename(playbook._file_name) + "\\n")
    """
    (tmp_path / "effects.py").write_text(textwrap.dedent(callback), encoding="utf-8")
    password = tmp_path / "password"
    password.write_text(f'#!/bin/sh\necho password >>"{tmp_path}/effects"\necho secret\n', encoding="utf-8")
    password.chmod(0o700)
    (tmp_path / "ansible.cfg").write_text(
        f"[defaults]\nvault_password_file = {password}\nlog_path = {tmp_path}/log\njinja2_extensions = jinja2.ext.do\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(tmp_path))
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))

    ran = await own.run(own.tasks("- {debug: {msg: said}}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert ran.ways == {"forked_worker: jinja_extensions": 1}
    effects = (tmp_path / "effects").read_text(encoding="utf-8").splitlines()
    assert len(effects) == len(set(effects)) == len(["password", "playbook"]), effects
    assert "set_fact" not in (tmp_path / "log").read_text(encoding="utf-8")
    assert own.engine.pool.shortfalls() == {}


@pytest.mark.nightly
async def test_a_home_folder_that_is_not_writable_is_no_problem(
    own: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/proc/home")

    with capture_logs() as lines:
        ran = await own.run(own.tasks(f"- {{copy: {{content: a, dest: {tmp_path}/copied}}}}\n- {{stat: {{path: /}}}}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    assert [line for line in lines if line["log_level"] not in {"debug", "info"}] == []
    assert own.engine.pool.shortfalls() == {}


@pytest.mark.nightly
async def test_the_problem_of_a_playbook_that_fails_anyway_is_one_short_line(plant: Plant, own: Any) -> None:
    plant(
        "runner.engines.warm.server.self_test",
        """
        def plant(module):
            module._PLAYBOOK[0]["tasks"].insert(0, {"fail": {"msg": "first\\nsecond " + "x" * 5000}})
        """,
    )

    ran = await own.run(own.tasks("- {stat: {path: /}}"))

    assert ran.result.outcome is Outcome.SUCCEEDED
    found = own.engine.pool.shortfalls()["self-test"]
    assert found.startswith("the playbook of the self-test fails without any shortcut: exit code 2: ")
    assert "first" in found
    assert len(found) <= 300
    assert "\n" not in found


@pytest.mark.nightly
async def test_a_changed_private_symbol_fails_the_self_test_of_one_shortcut_and_next_core_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(ansible.__file__).parent
    changed = tmp_path / "changed" / "ansible"
    shutil.copytree(installed, changed, ignore=shutil.ignore_patterns("__pycache__"))
    actions = changed / "plugins/action/__init__.py"
    text = actions.read_text(encoding="utf-8")
    actions.write_text(text.replace("_is_pipelining_enabled", "_is_pipelined"), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(changed.parent))

    results = next_core.self_test(Path(sys.executable), "modules", "values")
    before, after = symbols.Core(installed), symbols.Core(changed)
    used = symbols.uses(after)
    changes = next_core.changes(used, before, after)

    assert "_is_pipelining_enabled" in results["modules"]
    assert results["values"] == ""
    assert {name.rpartition(".")[2]: how for name, how in changes.items()} == {
        "_is_pipelining_enabled": "gone",
        "_execute_module": "source",  # it calls the other
    }
    lines = [line for line in next_core.table(results, used, changes) if line.startswith("| modules |")]
    assert "_is_pipelining_enabled" in lines[0]
    assert lines[0].endswith("| 2 |")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_each_symbol_that_is_gone_disables_a_shortcut_and_the_playbook_still_succeeds(tmp_path: Path) -> None:
    program = Path(__file__).with_name("moved_symbols.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(  # noqa: ASYNC221 - nothing else is to be done meanwhile
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    names = {each["symbol"].rpartition(".")[2] for each in found}
    assert {"_queue_task", "clean_facts", "copy", "find_plugin_with_context", "modify_module"} <= names, names
    left_on = [each["symbol"] for each in found if not each["disabled"]]
    assert {symbol.rpartition(".")[2] for symbol in left_on} <= REPLACED_WITHOUT_READING, left_on
    assert [each for each in found if each["problems"]] == []
