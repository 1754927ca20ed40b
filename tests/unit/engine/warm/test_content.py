from __future__ import annotations

from pathlib import Path

from runner.engine.warm import content
from runner.watches.watch import Playbook, Role


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

    assert content.modules(Role("sample", tmp_path / "roles/sample")) == {
        "kubernetes.core.k8s",
        "community.general.ini_file",
        "operator_sdk.util.k8s_status",
        "kubernetes.core.k8s_info",
    }


def test_modules_of_a_playbook_are_found_in_it_and_in_the_roles_beside_it(tmp_path: Path) -> None:
    playbook = write(tmp_path / "site.yml", "- hosts: localhost\n  tasks:\n    - kubernetes.core.helm: {name: x}\n")
    write(tmp_path / "roles/one/tasks/main.yml", "- kubernetes.core.k8s_scale: {replicas: 3}\n")
    write(tmp_path / "other.yml", "- kubernetes.core.k8s_exec: {}\n")

    assert content.modules(Playbook(playbook)) == {"kubernetes.core.helm", "kubernetes.core.k8s_scale"}


def test_files_that_cannot_be_read_name_no_modules(tmp_path: Path) -> None:
    role = tmp_path / "roles/odd"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks/main.yml").write_bytes(b"\xff\xfe kubernetes.core.k8s:")

    assert content.modules(Role("odd", role)) == frozenset()
    assert content.modules(Playbook(tmp_path / "gone.yml")) == frozenset()
