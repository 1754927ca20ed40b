"""What a role or playbook finds when it runs."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.engine.job import Outcome
from runner.core.watches.watch import Role

if TYPE_CHECKING:
    from tests.integration.engine.runs import Runs

    MakeJob = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_role_runs_with_the_roles_beside_it_and_without_facts_when_gathering_is_explicit(runs: Runs) -> None:
    runs.role("dependency", {"tasks/main.yml": "- name: dependency\n  debug: {msg: ran}\n"})
    runs.role("beside", {"tasks/main.yml": "- name: beside\n  debug: {msg: ran}\n"})
    role = runs.role(
        "memcached",
        {
            "meta/main.yml": "dependencies: [{role: dependency}]\n",
            "defaults/main.yml": "from_defaults: yes it is\n",
            "templates/t.j2": "{{ size }} {{ from_defaults }}",
            "tasks/main.yml": """
- include_role: {name: beside}
- name: found
  debug:
    msg:
      role_name: "{{ role_name }}"
      role_path: "{{ role_path }}"
      template: "{{ lookup('template', 't.j2') }}"
      env: "{{ lookup('env', 'FROM_OPERATOR') }}"
      kubeconfig: "{{ lookup('env', 'KUBECONFIG') }} {{ lookup('env', 'K8S_AUTH_KUBECONFIG') }}"
      kubeconfig_text: "{{ lookup('file', lookup('env', 'KUBECONFIG')) }}"
      python: "{{ ansible_playbook_python }} {{ ansible_python_interpreter }}"
      facts: "{{ ansible_facts | length }}"
      cwd: "{{ lookup('pipe', 'pwd') }}"
      extra: "{{ extra }}"
- name: module
  command: "{{ ansible_playbook_python }} -c 'import os; print(os.environ[\\"FROM_OPERATOR\\"], os.getcwd())'"
  register: module
- name: module said
  debug: {msg: "{{ module.stdout }}"}
- name: later
  operator_sdk.util.requeue_after: {time: 1m30s}
- include_tasks: more.yml
""",
            "tasks/more.yml": "- name: more\n  debug: {msg: more}\n  tags: [never, more]\n",
        },
    )

    ran = await runs.run(
        role,
        extra_vars={"size": 3},
        environment={"FROM_OPERATOR": "hello", "ANSIBLE_GATHERING": "explicit"},
        ansible_args="-e 'extra=\"two words\"' --diff",
    )

    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    found = ran.said("found")
    project = runs.run_dir / "project"
    kubeconfig = runs.run_dir / "env" / "kubeconfig"
    assert found == {
        "role_name": "memcached",
        "role_path": str(role.path),
        "template": "3 yes it is",
        "env": "hello",
        "kubeconfig": f"{kubeconfig} {kubeconfig}",
        "kubeconfig_text": "apiVersion: v1\nkind: Config",
        "python": f"{sys.executable} {sys.executable}",
        "facts": found["facts"],
        "cwd": str(project),
        "extra": "two words",
    }
    assert int(found["facts"]) == 0
    assert ran.said("dependency") == ran.said("beside") == "ran"
    assert ran.said("module said") == f"hello {project}"
    assert ran.result.requeue_after == 90
    assert ran.result.recap is not None
    assert (ran.result.recap.ok, ran.result.recap.changed, ran.result.recap.failures) == (8, 1, 0)
    assert not kubeconfig.exists()
    assert not (runs.run_dir / "tmp").exists()


async def test_a_playbook_runs_in_its_own_folder_in_any_locale_without_a_home(runs: Runs) -> None:
    playbook = runs.playbook(
        """
- hosts: localhost
  vars_files: [vars/größe.yml]
  tasks:
  - name: fünd
    debug:
      msg:
        playbook_dir: "{{ playbook_dir }}"
        size: "{{ größe }}"
        facts: "{{ ansible_facts.python.version.major }}"
        text: "{{ text }}"
""",
        name="spielbücher/größe.yml",
    )
    (playbook.path.parent / "vars").mkdir()
    (playbook.path.parent / "vars" / "größe.yml").write_text("größe: drei\n", encoding="utf-8")

    ran = await runs.run(
        playbook,
        extra_vars={"text": "naïve 😀 \u2028 \x85 end"},
        unsafe_keys=frozenset({"text"}),
        environment={"LC_ALL": "C", "LANG": "", "HOME": "/proc/no/home"},
    )

    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    assert ran.said("fünd") == {
        "playbook_dir": str(playbook.path.parent),
        "size": "drei",
        "facts": ran.said("fünd")["facts"],
        "text": "naïve 😀 \u2028 \x85 end",
    }
    assert int(ran.said("fünd")["facts"]) == sys.version_info.major
    command = json.loads((runs.run_dir / "artifacts" / "latest" / "command").read_text(encoding="utf-8"))
    assert command["cwd"] == str(runs.run_dir / "project")
    assert others_may_read(runs.run_dir.parent) == []


def others_may_read(root: Path) -> list[str]:
    """Return what others could read, outside of `project/`, which belongs to the role."""
    return [
        f"{path} {mode:o}"
        for path in root.rglob("*")
        if "project" not in path.parts and not path.is_symlink()
        if (mode := stat.S_IMODE(path.stat().st_mode)) != (0o700 if path.is_dir() else 0o600)
    ]


async def test_an_inventory_of_the_user_replaces_the_default_one(runs: Runs, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "hosts").write_text("localhost ansible_connection=local own=theirs\n", encoding="utf-8")
    (inventory / "group_vars" / "all.yml").write_text("from_group: all\n", encoding="utf-8")
    playbook = runs.tasks('- {name: found, debug: {msg: "{{ own }} {{ from_group }} {{ groups.all }}"}}')

    ran = await runs.run(playbook, environment={"ANSIBLE_INVENTORY": str(inventory)}, verbosity=7)

    assert ran.said("found") == "theirs all ['localhost']"


async def test_a_role_of_a_collection_runs_by_its_full_name(runs: Runs, tmp_path: Path) -> None:
    collection = tmp_path / "collections" / "ansible_collections" / "example" / "cache"
    for role, text in {
        "memcached": "- include_role: {name: other}\n- name: found\n  debug: {msg: '{{ ansible_role_name }}'}\n",
        "other": "- name: other\n  debug: {msg: other}\n",
    }.items():
        (collection / "roles" / role / "tasks").mkdir(parents=True)
        (collection / "roles" / role / "tasks" / "main.yml").write_text(text, encoding="utf-8")
    role_of_collection = Role("example.cache.memcached", collection / "roles" / "memcached")

    ran = await runs.run(
        role_of_collection,
        environment={"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"), "ANSIBLE_GATHERING": "explicit"},
    )

    assert ran.said("found") == "example.cache.memcached"
    assert ran.said("other") == "other"
