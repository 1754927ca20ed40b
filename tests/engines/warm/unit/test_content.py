from __future__ import annotations

from pathlib import Path

import pytest

from runner.core.watches.watch import Playbook, Role
from runner.engines.warm import content


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_modules_are_found_in_tasks_handlers_and_the_roles_that_a_role_depends_on(tmp_path: Path) -> None:
    write(tmp_path / "roles/sample/tasks/main.yml", "- name: a\n  kubernetes.core.k8s:\n    state: present\n")
    write(tmp_path / "roles/sample/tasks/more/b.yaml", "- block:\n    - community.general.ini_file: {path: x}\n")
    write(tmp_path / "roles/sample/handlers/main.yml", "- operator_sdk.util.k8s_status : {}\n")
    write(tmp_path / "roles/sample/meta/main.yml", "dependencies:\n  - role: base\n  - sample\n  - elsewhere.x.y\n")
    write(tmp_path / "roles/base/tasks/main.yml", "- kubernetes.core.k8s_info: {kind: Pod}\n")
    write(tmp_path / "roles/sample/templates/x.yml", "apps.example.com: no task\n")

    assert content.modules(Role("sample", tmp_path / "roles/sample"), explicit=True) == {
        "kubernetes.core.k8s",
        "community.general.ini_file",
        "operator_sdk.util.k8s_status",
        "kubernetes.core.k8s_info",
    }


def test_templates_are_in_the_files_of_a_role_and_of_those_that_it_depends_on(tmp_path: Path) -> None:
    values, whole = (
        ["tasks/main.yml", "defaults/main.yaml", "vars/a/b.yml"],
        ["templates/x.j2", "templates/deep/y.conf"],
    )
    for name in (*values, *whole, "files/z.yml"):
        write(tmp_path / "roles/sample" / name, "")
    write(tmp_path / "roles/sample/meta/main.yml", "dependencies: \n- role: base\n")
    write(tmp_path / "roles/base/handlers/main.yml", "")
    role = Role("sample", tmp_path / "roles/sample")

    assert content.files(role) == {
        *(f"{tmp_path}/roles/sample/{name}" for name in values),
        f"{tmp_path}/roles/base/handlers/main.yml",
    }
    assert content.template_files(role) == {f"{tmp_path}/roles/sample/{name}" for name in whole}


def test_a_playbook_has_values_itself_and_templates_beside_it(tmp_path: Path) -> None:
    playbook = write(tmp_path / "site.yml", "- hosts: localhost\n")
    write(tmp_path / "templates/x.yml", "")

    assert content.files(Playbook(playbook)) == {str(playbook)}
    assert content.template_files(Playbook(playbook)) == {f"{tmp_path}/templates/x.yml"}


def test_modules_of_a_playbook_are_found_in_it_and_in_the_roles_beside_it(tmp_path: Path) -> None:
    playbook = write(tmp_path / "site.yml", "- hosts: localhost\n  tasks:\n    - kubernetes.core.helm: {name: x}\n")
    write(tmp_path / "roles/one/tasks/main.yml", "- kubernetes.core.k8s_scale: {replicas: 3}\n")
    write(tmp_path / "other.yml", "- kubernetes.core.k8s_exec: {}\n")

    assert content.modules(Playbook(playbook), explicit=True) == {"kubernetes.core.helm", "kubernetes.core.k8s_scale"}


def test_files_that_cannot_be_read_name_no_modules(tmp_path: Path) -> None:
    role = tmp_path / "roles/odd"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks/main.yml").write_bytes(b"\xff\xfe kubernetes.core.k8s:")

    assert content.modules(Role("odd", role), explicit=True) == frozenset()
    assert content.modules(Playbook(tmp_path / "gone.yml"), explicit=True) == frozenset()


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("text", "gathers"),
    [
        ("- hosts: localhost\n  tasks: []\n", {False}),
        ("- hosts: localhost\n  gather_facts: false\n- hosts: localhost\n", {False}),
        ("- hosts: localhost\n  gather_facts: no\n", set()),
        ("- gather_facts: false\n  hosts: localhost\n", set()),
        ("- hosts: localhost\n  gather_facts: true\n", {False, True}),
        ("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - setup:\n", {False, True}),
        ("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.setup: {}\n", {False, True}),
    ],
)
def test_the_module_of_facts_is_among_them_if_a_play_gathers_facts(
    text: str, gathers: set[bool], *, explicit: bool, tmp_path: Path
) -> None:
    playbook = write(tmp_path / "site.yml", text)

    found = content.modules(Playbook(playbook), explicit=explicit)

    assert ("ansible.legacy.setup" in found) is (explicit in gathers)


def test_the_play_of_a_role_gathers_facts_unless_gathering_is_explicit(tmp_path: Path) -> None:
    write(tmp_path / "roles/quiet/tasks/main.yml", "- debug:\n")
    write(tmp_path / "roles/curious/tasks/main.yml", "- name: Gather facts\n  ansible.builtin.setup:\n")

    def gathers(name: str, *, explicit: bool) -> bool:
        return "ansible.legacy.setup" in content.modules(Role(name, tmp_path / "roles" / name), explicit=explicit)

    assert gathers("quiet", explicit=False)
    assert not gathers("quiet", explicit=True)
    assert gathers("curious", explicit=True)
