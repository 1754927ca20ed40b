"""Lookups that ignore their errors hide which objects a run would use."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.prune.ignored_lookups import ignored_lookup
from runner.watches.watch import Playbook, Role


def role(root: Path, name: str, tasks: str) -> Role:
    file = root / name / "tasks" / "main.yml"
    file.parent.mkdir(parents=True)
    file.write_text(tasks)
    return Role(name, root / name)


@pytest.mark.parametrize(
    ("tasks", "line"),
    [
        ("""- set_fact: {taps: "{{ lookup('url', 'http://a/', errors='ignore') }}"}\n""", 1),
        ("---\n- debug: {msg: '{{ query(`k8s`, kind=`Pod`, errors=`warn`) }}'}\n".replace("`", '"'), 2),
        ("---\n- debug:\n  loop: >-\n    {{ q('url',\n         'a',\n         errors = 'ignore') | list }}\n", 4),
        ("- debug:\n  when: lookup('file', '/x', errors='ignore') != ''\n", 2),
    ],
)
def test_a_lookup_that_ignores_its_errors_is_found_with_its_line(tmp_path: Path, tasks: str, line: int) -> None:
    found = ignored_lookup(role(tmp_path, "keg", tasks), [])
    assert found == f"a lookup ignores its errors ({tmp_path}/keg/tasks/main.yml:{line})"


@pytest.mark.parametrize(
    "tasks",
    [
        "- debug: {msg: \"{{ lookup('url', 'http://a/') }}\"}\n",
        "- debug: {msg: \"{{ lookup('url', 'http://a/', errors='strict') }}\"}\n",
        "# - debug: {msg: \"{{ lookup('url', 'http://a/', errors='ignore') }}\"}\n",
        "- debug: {msg: \"{{ lookup('url', 'http://a/') }} {{ text | to_uuid(errors='ignore') }}\"}\n",
        "- debug: {msg: \"{{ lookup('url', 'http://a/') }}\"}\n- debug: {msg: \"errors='ignore'\"}\n",
    ],
)
def test_other_lookups_hide_nothing(tmp_path: Path, tasks: str) -> None:
    assert ignored_lookup(role(tmp_path, "keg", tasks), []) == ""


def test_roles_that_the_content_names_count_and_others_do_not(tmp_path: Path) -> None:
    ignoring = "- debug: {msg: \"{{ lookup('url', 'http://a/', errors='ignore') }}\"}\n"
    role(tmp_path, "hidden", ignoring)
    role(tmp_path, "between", "- include_role: {name: hidden}\n")
    role(tmp_path, "unrelated", ignoring)
    plain = role(tmp_path, "keg", "- debug:\n")
    assert ignored_lookup(plain, [tmp_path, tmp_path / "nowhere"]) == ""
    including = role(tmp_path, "mug", "- include_role: {name: between}\n")
    assert f"{tmp_path}/hidden/tasks/main.yml:1" in ignored_lookup(including, [tmp_path])


def test_the_files_beside_a_playbook_count(tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text("- hosts: localhost\n  roles: [keg]\n")
    role(tmp_path / "roles", "keg", "- debug: {msg: \"{{ lookup('url', 'http://a/', errors='ignore') }}\"}\n")
    assert "roles/keg/tasks/main.yml:1" in ignored_lookup(Playbook(playbook), [])


def test_what_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    plain = role(tmp_path, "keg", "- debug:\n")
    (tmp_path / "keg" / "tasks" / "gone.yml").symlink_to(tmp_path / "nowhere")
    assert ignored_lookup(plain, []) == ""
