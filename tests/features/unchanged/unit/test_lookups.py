"""Lookups in the text of roles: which run commands, which check mode does not skip, and which ignore their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.core.content import lookups
from runner.core.watches.watch import Playbook, Role


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("msg: \"{{ lookup('pipe', 'curl -X POST http://example.com') }}\"", [(1, "pipe")]),
        ('a: 1\nmsg: "{{ lookup(\\"pipe\\", \'date\') }}"', [(2, "pipe")]),
        (
            "x: >-\n  {{ query(\n    'ansible.builtin.lines', 'ls') }}\ny: {{ q(\"pipe\", 'id') }}",
            [(2, "lines"), (4, "pipe")],
        ),
        ("- debug: {msg: '{{ item }}'}\n  with_pipe: [ls]\n- with_lines: [ls]", [(2, "pipe"), (3, "lines")]),
        ("# {{ lookup('pipe', 'date') }}\n  # with_pipe: ls", []),
        ("{{ lookup('env', 'pipe') }} {{ lookup('file', 'x') }} unlookup", [(1, "env"), (1, "file")]),
        ("{{ lookup(name, 'x') }}", [(1, "")]),
        ("pipe: lines\nwith_items: [pipe]", [(2, "items")]),
    ],
)
def test_lookups_are_found_with_their_lines(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(line, name) for line, name, _ in lookups.in_text(text)] == expected


@pytest.mark.parametrize(
    ("text", "ignores"),
    [
        ("x: \"{{ lookup('url', 'http://a/', errors='ignore') }}\"", True),
        ("x: '{{ query(`k8s`, kind=`Pod`, errors=`warn`) }}'".replace("`", '"'), True),
        ('x: "{{ lookup(\\"url\\", \\"a\\", errors=\\"ignore\\") }}"', True),
        ("loop: >-\n  {{ q('url',\n       'a',\n       errors = 'ignore') | list }}", True),
        ("when: lookup(name, '/x', errors='ignore') != ''", True),
        ("x: \"{{ lookup('k8s', resource_definition={'a': {'b': 1}}, errors='ignore') }}\"", True),
        ("x: \"{{ query('url', {'a': {'b': {}}} | to_json, errors='ignore') }}\"", True),
        ("x: \"{{ lookup('url', 'http://a/', errors='strict') }}\"", False),
        ("x: \"{{ lookup('url', 'http://a/') }} {{ text | to_uuid(errors='ignore') }}\"", False),
        ("- when: lookup('url', 'http://a/')\n- debug: {msg: \"errors='ignore'\"}", False),
    ],
)
def test_a_lookup_that_ignores_its_errors_is_known(text: str, *, ignores: bool) -> None:
    assert [each for _, _, each in lookups.in_text(text)] == [ignores]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


ACTS = "x: \"{{ lookup('pipe', 'date') }}\"\n"


def test_the_files_of_the_content_and_of_the_roles_of_executed_tasks_are_read(tmp_path: Path) -> None:
    site = write(tmp_path / "site.yml", ACTS)
    beside = write(tmp_path / "group_vars/all.yml", ACTS)
    included = write(tmp_path / "roles/used/tasks/more/main.yml", "[]")
    template = write(tmp_path / "roles/used/templates/t.j2", f"a\n{ACTS}")
    write(tmp_path / "roles/other/tasks/main.yml", ACTS)
    write(tmp_path / "roles/used/files/script.sh", ACTS)
    found = set(
        lookups.of_run(Playbook(site), [f"{included}:3", f"{site}:1", "/in/the/image/of/a/pod/tasks/main.yml:1", ""])
    )
    assert {each.place for each in found} == {f"{site}:1", f"{beside}:1", f"{template}:2"}
    assert {each.name for each in found} == {"pipe"}


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    defaults = write(tmp_path / "defaults/main.yml", ACTS)
    role = Role("r", tmp_path)
    assert [each.place for each in lookups.of_run(role, ())] == [f"{defaults}:1"]
    write(defaults, f"# more\n{ACTS}")
    assert [each.place for each in lookups.of_run(role, ())] == [f"{defaults}:2"]


TASKS = """- name: One
  block:
  - debug:
      msg:
        - "{{ lookup('pipe', 'a') }}"
        - b
    when: lookup('pipe', 'c')
  - debug: msg="{{ lookup('pipe', 'd') }}"
    with_pipe: e
  vars: {f: "{{ lookup('pipe', 'f') }}"}
"""


@pytest.mark.parametrize(
    ("executed", "expected"),
    [({3, 8}, [5, 7, 8, 9, 10]), ({8}, [7, 8, 9, 10]), ({3}, [5, 7, 9, 10]), (set(), [7, 9, 10])],
)
def test_lookups_of_skipped_tasks_are_not_reached_unless_they_decide_about_the_task(
    tmp_path: Path, executed: set[int], expected: list[int]
) -> None:
    path = write(tmp_path / "tasks/main.yml", TASKS)
    paths = {f"{path}:{line}": line in executed for line in (3, 8)}
    found = [
        int(each.place.rpartition(":")[2])
        for each in lookups.of_run(Role("r", tmp_path), paths)
        if each.is_reached(paths)
    ]
    assert found == expected
