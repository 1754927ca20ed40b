"""How tasks are executed, and for which reason in a slower way."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pytest

from runner.core.engine.job import Outcome
from tests.integration.engine.runs import ENGINE

if TYPE_CHECKING:
    from tests.integration.engine.runs import Ran, Runs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(ENGINE != "warm", reason="only forked runs report how their tasks were executed"),
]

ORDINARY = """
- {name: fact, set_fact: {answer: "{{ 6 * 7 }}"}}
- {name: said, debug: {msg: "{{ answer }}"}}
- {name: skipped, command: "false", when: answer | int != 42}
- {name: ensured, assert: {that: answer | int == 42}}
- {name: looked up, set_fact: {found: "{{ lookup('env', 'HOME') }}"}}
- {name: included, include_tasks: more.yml, loop: [1, 2]}
- {name: status, stat: {path: /}}
- {name: folder, tempfile: {state: directory}, register: folder}
- {name: copied, copy: {content: text, dest: "{{ folder.path }}/file"}}
- {name: templated, template: {src: page.j2, dest: "{{ folder.path }}/page"}}
- {name: lines, lineinfile: {path: "{{ folder.path }}/file", line: more}}
- {name: executed, command: echo hello}
- {name: in a shell, shell: echo hello | cat}
- {name: found, find: {paths: "{{ folder.path }}"}}
- {name: read, slurp: {src: "{{ folder.path }}/file"}}
- {name: waited, wait_for: {path: "{{ folder.path }}/file"}}
- {name: pinged, ping: }
- {name: gathered, setup: {gather_subset: ["!all"]}}
- name: rescued
  block: [{name: fails, fail: }]
  rescue: [{name: rescues, debug: {msg: rescued}}]
  always: [{name: removed, file: {path: "{{ folder.path }}", state: absent}}]
- {name: of a collection, kubernetes.core.k8s: {state: absent, kind: Pod}, ignore_errors: true}
- {name: information, kubernetes.core.k8s_info: {kind: Pod}, ignore_errors: true}
- {name: again and again, command: echo, until: true, retries: 2, delay: 0}
"""


def ways(ran: Ran) -> dict[str, int]:
    """Return the totals of a run that succeeded."""
    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    return ran.ways


@pytest.mark.full
async def test_ordinary_modules_start_no_new_interpreter(runs: Runs) -> None:
    playbook = runs.tasks(ORDINARY)
    (runs.content / "more.yml").write_text("- {name: more, debug: {msg: '{{ item }}'}}\n", encoding="utf-8")
    (runs.content / "page.j2").write_text("{{ answer }}\n", encoding="utf-8")

    ran = await runs.run(playbook)

    found = ways(ran)
    assert found.keys() <= {"playbook_process", "forked_module", "forked_worker: action"}, ran.executions
    assert found["forked_module"] >= 15


NEW_INTERPRETERS = {
    "async": "{command: echo, async: 10, poll: 1}",
    "interpreter_environment": "{command: echo, environment: {LD_BIND_NOW: '1'}}",
    "other_interpreter": "{command: echo, vars: {ansible_python_interpreter: /usr/bin/python3}}",
    "not_python": "old_module:",
    "starts_interpreter": "restarts:",
}
WORKERS = {
    "timeout": "{command: echo, timeout: 10}",
    "action": "pause: {seconds: 0}",
    "plugin": "set_fact: {found: \"{{ lookup('pipe', 'echo') }}\"}",
    "changed_value": "{debug: {msg: '{{ given.append(1) }}'}, vars: {given: []}}",
}


async def test_a_module_that_needs_it_has_a_new_interpreter_and_a_task_a_worker(runs: Runs) -> None:
    playbook = runs.tasks("\n".join(f"- {task}" for task in (*NEW_INTERPRETERS.values(), *WORKERS.values())))
    library = runs.content / "library"
    library.mkdir()
    (library / "old_module").write_text("#!/bin/sh\necho '{\"changed\": false}'\n", encoding="utf-8")
    (library / "restarts.py").write_text(
        "import multiprocessing\nfrom ansible.module_utils.basic import AnsibleModule\nAnsibleModule({}).exit_json()\n",
        encoding="utf-8",
    )

    ran = await runs.run(playbook)

    found = ways(ran)
    assert {way for way in found if way.startswith("new_interpreter")} == {
        f"new_interpreter: {reason}" for reason in NEW_INTERPRETERS
    }
    forked = {way for way in found if way.startswith("forked_worker")}
    assert forked >= {f"forked_worker: {reason}" for reason in WORKERS}


async def test_with_high_verbosity_a_module_has_a_new_interpreter(runs: Runs) -> None:
    found = ways(await runs.run(runs.tasks("- {command: echo}"), verbosity=3))

    assert [way for way in found if not way.startswith("forked_worker")] == ["new_interpreter: verbosity"]


EXPORTED = {
    "VIRTUAL_ENV": "/venv",
    "PS1": "(venv) $ ",
    "VIRTUAL_ENV_PROMPT": "(venv) ",
    "TMUX": "/tmp/tmux-0/default,7,0",
    "TMUX_PANE": "%0",
    "TERM": "screen",
    "SHLVL": "3",
    "BASH_FUNC_which%%": "() {  echo\n}",
    "IFS": ":",
    "OPTIND": "3",
    "PS2": "> ",
    "MAIL": "/var/mail/root",
}
"""Variables of a virtual environment, of tmux, and of a login shell."""


async def test_variables_that_an_interactive_shell_exports_start_no_new_interpreter(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in EXPORTED.items():
        monkeypatch.setenv(name, value)
    playbook = runs.tasks(
        "- {name: shown, command: env, register: it}\n- {name: said, debug: {msg: '{{ it.stdout }}'}}"
    )

    forked = await runs.run(playbook)
    started = await runs.run(playbook, engine="exec")

    assert ways(forked) == {"forked_module": 1, "playbook_process": 2}
    names = EXPORTED.keys()
    assert _variables(forked.said("said"), names) == _variables(started.said("said"), names)


def _variables(text: str, names: Collection[str]) -> dict[str, str]:
    found = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in found if name in names}
