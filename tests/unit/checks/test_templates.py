"""Errors in templates of a role, and files that none of its folders has."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
from runner.base.config import paths
from runner.compatibility import validation
from runner.sdk.checks import templates
from runner.sdk.checks.templates import Scan


def write(project: Path, name: str, text: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def scanned(project: Path, content: str = "role: r") -> tuple[Scan, list[str]]:
    """Return the names in a project's files, and its problems without the name of the role's folder."""
    write(project, "watches.yaml", f"- {{group: example.com, version: v1, kind: K, {content}}}\n")
    environ = {"HOME": str(project / "home")}
    places = paths.search_path(cwd=project, roles_path="", collections_path="", environ=environ)
    result = validation.validate(
        Path("watches.yaml"), environ=environ, cwd=project, search_path=places, features=FEATURE_FIELDS
    )
    scan = templates.scan(result, project, places, result.problems)
    return scan, [line.removeprefix("roles/r/") for _, line in result.problems.report(strict=False)]


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ('debug: {msg: "{{ a }"}', "2: error: invalid template: unexpected '}': {{ a }"),
        (
            "debug:\n    msg: |\n      first\n      {{ a b }}",
            "5: error: invalid template: expected token",
        ),
        ("debug: {msg: b}\n  when: a ==", "3: error: invalid template: unexpected 'end of print statement': a =="),
        ("assert: {that: [a, b or]}", "2: error: invalid template: unexpected 'end of print statement': b or"),
        ('debug: {msg: "{% if a %}"}', "2: error: invalid template: Unexpected end of template"),
        ("debug:\n    msg: {{ a }}", "3: error: a value that begins with {{ is a mapping: put it in quotes"),
        ("template: {src: a.j3}", "2: warning: template 'a.j3' not found; did you mean a.j2?"),
        ("template: src=zzz dest=b", "2: warning: template 'zzz' not found; searched roles/r/templates"),
        ("copy: {src: zzz}", "2: warning: file 'zzz' not found; searched roles/r/files"),
        ("include_vars: none.yml", "2: warning: file 'none.yml' not found; searched roles/r/vars"),
        ("kubernetes.core.k8s: {template: a.j3}", "2: warning: template 'a.j3' not found; did you mean a.j2?"),
        ("debug: {msg: \"{{ lookup('file', 'c.tx') }}\"}", "2: warning: file 'c.tx' not found; did you mean c.txt?"),
        ("debug: {msg: \"{{ q('ansible.builtin.template', 'd') }}\"}", "2: warning: template 'd' not found; searched"),
    ],
)
def test_a_defect_of_a_task_has_its_line(tmp_path: Path, task: str, problem: str) -> None:
    write(tmp_path, "roles/r/templates/a.j2", "{{ a }}")
    write(tmp_path, "roles/r/files/c.txt", "c")
    write(tmp_path, "roles/r/tasks/main.yml", f"- name: a\n  {task}\n")
    _, (line,) = scanned(tmp_path)
    assert line.startswith(f"tasks/main.yml:{problem}")


@pytest.mark.parametrize(
    "task",
    [
        "debug: {msg: !unsafe '{{ a }'}",
        "debug: {msg: !unsafe {a: '{{ a }'}}",
        'debug: {msg: "{% raw %}{{ $labels.a }}{% endraw %}"}',
        'debug: {msg: \'{{ "{{" }} $a {{ "}}" }}\'}',
        "debug: {msg: a}\n  when: false",
        'debug: {msg: a}\n  when: "{{ a }} is b"',
        "template: {src: a.j2}",
        'template: {src: "{{ a }}.j2"}',
        "template: {src: /opt/a.j2}",
        "template: {src: sub/b.tmpl}",
        "copy: {content: a, dest: b}",
        "copy: {src: a, dest: b, remote_src: true}",
        "copy: {src: folder/, dest: b}",
        "include_vars: {dir: vars}",
        "include_vars: {file: more.yml}",
        "debug: {msg: \"{{ lookup('file', 'none', errors='ignore') }}\"}",
        "debug: {msg: \"{{ lookup('template', a + '.j2') }}\"}",
        "kubernetes.core.k8s: {definition: \"{{ lookup('template', 'sub/b.tmpl') | from_yaml_all | list }}\"}",
        "kubernetes.core.k8s: {definition: {spec: {when: a b, that: [c d]}}}",
        "set_fact: {a: \"{{ b | combine({'c': d}, recursive=true) }}\"}\n  loop: \"{{ query('k8s', kind='Pod') }}\"",
    ],
)
def test_what_roles_do_is_no_problem(tmp_path: Path, task: str) -> None:
    write(tmp_path, "roles/r/templates/a.j2", "{{ a }}")
    write(tmp_path, "roles/r/templates/sub/b.tmpl", "{{ a }}")
    write(tmp_path, "roles/r/templates/dashboard.json", "{{ not rendered")
    write(tmp_path, "roles/r/vars/more.yml", "a: 1")
    write(tmp_path, "roles/r/files/folder/a", "")
    write(tmp_path, "roles/r/tasks/main.yml", f"- name: a\n  {task}\n")
    assert scanned(tmp_path)[1] == []


def test_templates_of_a_role_are_read_with_their_own_lines(tmp_path: Path) -> None:
    write(tmp_path, "roles/r/tasks/main.yml", "- template: {src: b.cfg}\n")
    write(tmp_path, "roles/r/templates/a.j2", "a\n{{ b")
    write(tmp_path, "roles/r/templates/b.cfg", "{% fi %}")
    _, lines = scanned(tmp_path)
    assert [line.partition(" error: ")[0] for line in lines] == ["templates/a.j2:2:", "templates/b.cfg:1:"]


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("template: {src: a.j2, variable_start_string: '[['}", "{{ a"),
        ("template: {src: a.j2}", "#jinja2: variable_start_string: '[['\n{{ a"),
    ],
)
def test_templates_with_other_delimiters_are_not_read(tmp_path: Path, task: str, text: str) -> None:
    write(tmp_path, "roles/r/tasks/main.yml", f"- {task}\n")
    write(tmp_path, "roles/r/templates/a.j2", text)
    assert scanned(tmp_path)[1] == []


def test_names_in_templates_have_their_lines(tmp_path: Path) -> None:
    write(tmp_path, "roles/r/tasks/main.yml", "- debug:\n    msg: |\n      a\n      {{ b | c.d.e }} {{ f is g }}\n")
    scan, _ = scanned(tmp_path)
    assert [use[:4] for use in scan.uses] == [
        ("module", "debug", "roles/r/tasks/main.yml", 1),
        ("filter", "c.d.e", "roles/r/tasks/main.yml", 4),
        ("test", "g", "roles/r/tasks/main.yml", 4),
    ]
    assert scan.variables == {"b": ("roles/r/tasks/main.yml", 4), "f": ("roles/r/tasks/main.yml", 4)}


def test_actions_are_modules_and_parameters_of_roles_are_not(tmp_path: Path) -> None:
    write(tmp_path, "roles/r/tasks/main.yml", "- action: '{{ a }}'\n- local_action: ping\n- block: []\n")
    write(tmp_path, "play.yml", "- hosts: localhost\n  roles:\n    - {name: r, colour: red}\n")
    assert [use.name for use in scanned(tmp_path, "playbook: play.yml")[0].uses] == ["ping"]
