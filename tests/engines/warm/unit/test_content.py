from __future__ import annotations

from pathlib import Path

import pytest

from runner.core.watches.watch import Content, Playbook, Role
from runner.engines.warm import content
from runner.engines.warm.messages import Load


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(watched: Content, *roots: Path, explicit: bool = True) -> Load:
    return content.load(watched, roots, explicit=explicit)


def test_modules_are_found_in_tasks_handlers_and_the_roles_that_a_role_depends_on(tmp_path: Path) -> None:
    write(tmp_path / "roles/sample/tasks/main.yml", "- name: a\n  kubernetes.core.k8s:\n    state: present\n")
    write(tmp_path / "roles/sample/tasks/more/b.yaml", "- block:\n    - community.general.ini_file: {path: x}\n")
    write(tmp_path / "roles/sample/handlers/main.yml", "- operator_sdk.util.k8s_status : {}\n")
    write(tmp_path / "roles/sample/meta/main.yml", "dependencies:\n  - role: base\n  - sample\n  - elsewhere.x.y\n")
    write(tmp_path / "roles/base/tasks/main.yml", "- kubernetes.core.k8s_info: {kind: Pod}\n")
    write(tmp_path / "roles/sample/templates/x.yml", "apps.example.com: no task\n")

    assert load(Role("sample", tmp_path / "roles/sample")).modules == {
        "kubernetes.core.k8s",
        "community.general.ini_file",
        "operator_sdk.util.k8s_status",
        "kubernetes.core.k8s_info",
    }


def test_short_names_of_modules_that_operators_use_are_found(tmp_path: Path) -> None:
    write(
        tmp_path / "roles/sample/tasks/main.yml",
        "- k8s: {state: present}\n- name: a\n  k8s_status:\n- {}\n- uri: {url: x}\n- k8s_mine: {}\n- name: k8s\n",
    )

    assert load(Role("sample", tmp_path / "roles/sample")).modules == {
        "kubernetes.core.k8s",
        "operator_sdk.util.k8s_status",
        "ansible.legacy.uri",
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

    assert load(role).files == {
        *(f"{tmp_path}/roles/sample/{name}" for name in values),
        f"{tmp_path}/roles/base/handlers/main.yml",
    }
    assert load(role).template_files == {f"{tmp_path}/roles/sample/{name}" for name in whole}


def test_a_playbook_has_values_itself_and_templates_beside_it(tmp_path: Path) -> None:
    playbook = write(tmp_path / "site.yml", "- hosts: localhost\n")
    write(tmp_path / "templates/x.yml", "")

    assert load(Playbook(playbook)).files == {str(playbook)}
    assert load(Playbook(playbook)).template_files == {f"{tmp_path}/templates/x.yml"}


def test_modules_of_a_playbook_are_found_in_it_and_in_the_roles_beside_it(tmp_path: Path) -> None:
    playbook = write(tmp_path / "site.yml", "- hosts: localhost\n  tasks:\n    - kubernetes.core.helm: {name: x}\n")
    write(tmp_path / "roles/one/tasks/main.yml", "- kubernetes.core.k8s_scale: {replicas: 3}\n")
    write(tmp_path / "other.yml", "- kubernetes.core.k8s_exec: {}\n")

    assert load(Playbook(playbook)).modules == {"kubernetes.core.helm", "kubernetes.core.k8s_scale"}


def test_each_module_of_ansible_core_has_one_name_and_actions_that_run_none_are_left_out(tmp_path: Path) -> None:
    names = ("ansible.builtin.uri", "ansible.legacy.uri", "uri", "ansible.builtin.set_fact", "ansible.builtin.template")
    write(tmp_path / "roles/sample/tasks/main.yml", "".join(f"- {name}: {{}}\n" for name in names))

    assert load(Role("sample", tmp_path / "roles/sample")).modules == {"ansible.legacy.uri"}


def test_roles_that_a_playbook_or_a_role_names_are_found_in_the_folders_of_roles(tmp_path: Path) -> None:
    playbook = write(tmp_path / "playbooks/site.yml", "- hosts: localhost\n  roles:\n    - installer\n")
    write(tmp_path / "roles/installer/tasks/main.yml", "- include_role: {name: common}\n- k8s_info: {kind: Pod}\n")
    write(tmp_path / "roles/installer/templates/x.j2", "")
    write(tmp_path / "more/common/tasks/main.yml", "- kubernetes.core.k8s_scale: {replicas: 3}\n")
    write(tmp_path / "more/installer/tasks/main.yml", "- kubernetes.core.helm: {name: another of this name}\n")
    write(tmp_path / "more/unused/tasks/main.yml", "- kubernetes.core.k8s_exec: {}\n")

    prepared = load(Playbook(playbook), tmp_path / "roles", tmp_path / "more", tmp_path / "gone")

    assert prepared.modules == {"kubernetes.core.k8s_info", "kubernetes.core.k8s_scale"}
    assert prepared.template_files == {f"{tmp_path}/roles/installer/templates/x.j2"}
    assert f"{tmp_path}/more/common/tasks/main.yml" in prepared.files


def test_actions_and_lookups_of_collections_are_plugins_to_prepare(tmp_path: Path) -> None:
    write(
        tmp_path / "roles/sample/tasks/main.yml",
        """- k8s: {src: "{{ lookup('k8s', kind='Pod') }}"}\n- fail: {msg: "{{ q('a.b.c') + q('env', 'X') }}"}""",
    )

    assert load(Role("sample", tmp_path / "roles/sample")).plugins == {
        "ansible_collections.kubernetes.core.plugins.action.k8s",  # not its lookup, which runs load
        "ansible_collections.a.b.plugins.lookup.c",
    }


def test_of_a_huge_role_only_the_first_files_are_read_and_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "_MOST_FILES", 2)
    for name in "abc":
        write(tmp_path / f"roles/huge/tasks/{name}.yml", f"- x.y.{name}: {{}}\n")
        write(tmp_path / f"roles/huge/templates/{name}.j2", "")

    prepared = load(Role("huge", tmp_path / "roles/huge"))

    assert prepared.modules == {"x.y.a", "x.y.b"}
    assert prepared.files == {f"{tmp_path}/roles/huge/tasks/{name}.yml" for name in "ab"}
    assert prepared.template_files == {f"{tmp_path}/roles/huge/templates/{name}.j2" for name in "ab"}


def test_files_that_cannot_be_read_name_no_modules(tmp_path: Path) -> None:
    role = tmp_path / "roles/odd"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks/main.yml").write_bytes(b"\xff\xfe kubernetes.core.k8s:")

    assert load(Role("odd", role)).modules == frozenset()
    assert load(Playbook(tmp_path / "gone.yml")).modules == frozenset()


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

    modules = load(Playbook(playbook), explicit=explicit).modules

    assert ("ansible.legacy.setup" in modules) is (explicit in gathers)


def test_the_play_of_a_role_gathers_facts_unless_gathering_is_explicit(tmp_path: Path) -> None:
    write(tmp_path / "roles/quiet/tasks/main.yml", "- debug:\n")
    write(tmp_path / "roles/curious/tasks/main.yml", "- name: Gather facts\n  ansible.builtin.setup:\n")

    def gathers(name: str, *, explicit: bool) -> bool:
        return "ansible.legacy.setup" in load(Role(name, tmp_path / "roles" / name), explicit=explicit).modules

    assert gathers("quiet", explicit=False)
    assert not gathers("quiet", explicit=True)
    assert gathers("curious", explicit=True)
