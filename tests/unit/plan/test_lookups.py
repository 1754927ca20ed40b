"""Lookups that run commands, which check mode does not skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.plan import lookups
from runner.watches.watch import Playbook, Role


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
        ("{{ lookup('env', 'pipe') }} {{ lookup('file', 'x') }} unlookup", []),
        ("pipe: lines\nwith_items: [pipe]", []),
    ],
)
def test_lookups_that_run_commands_are_found_with_their_lines(text: str, expected: list[tuple[int, str]]) -> None:
    assert list(lookups.in_text(text)) == expected


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
    found = lookups.found(Playbook(site), [f"{included}:3", f"{site}:1", "/in/the/image/of/a/pod/tasks/main.yml:1", ""])
    assert {each.path for each in found} == {f"{site}:1", f"{beside}:1", f"{template}:2"}
    assert {(each.task, each.action, each.reason) for each in found} == {
        ("lookup pipe", "lookup pipe", "it runs its command for real, in plans too")
    }


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    defaults = write(tmp_path / "defaults/main.yml", ACTS)
    role = Role("r", tmp_path)
    assert [each.path for each in lookups.found(role, ())] == [f"{defaults}:1"]
    write(defaults, f"# more\n{ACTS}")
    assert [each.path for each in lookups.found(role, ())] == [f"{defaults}:2"]
