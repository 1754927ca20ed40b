"""Constructs of roles that a later ansible-core, or each one, does not accept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
from runner.base.config import paths
from runner.cli import main
from runner.compatibility import core_changes, finding, validation
from tests.unit.migrate.projects import Analyse, Write

Rules = Callable[..., list[tuple[str, str]]]
MAIN = "roles/shop/tasks/main.yml"


def test_each_keyword_with_a_condition_is_checked(rules: Rules) -> None:
    tasks = """\
- ansible.builtin.command: "true"
  register: result
  when: x | length
  failed_when: result.stdout
  changed_when: [result.rc, x is defined]
  until: result.stdout_lines
  loop: [1]
  loop_control:
    break_when: x | count
- ansible.builtin.assert:
    that:
      - x | length
- when: x | length
  block:
    - ansible.builtin.debug:
      when: >-
        x | length
"""
    found = [place for rule, place in rules({MAIN: tasks}) if rule == "implicit-boolean"]
    assert found == [f"{MAIN}:{line}" for line in (3, 4, 5, 6, 9, 12, 13, 17)]


@pytest.mark.parametrize(
    ("condition", "fix"),
    [
        ("x | length", "write `x | length > 0`"),
        ("x | default([]) | length", "write `x | default([]) | length > 0`"),
        # x can have every type, also a boolean
        ("x | default('no')", "write `x | default('no') is truthy`"),
        ("x.y | d([])", "write `x.y | d([]) is truthy`"),
        ("x.stdout | regex_search('a')", "write `(x.stdout | regex_search('a')) is not none`"),
    ],
)
def test_the_fix_of_a_condition_keeps_its_result(analyse: Analyse, condition: str, fix: str) -> None:
    report = analyse({MAIN: f'- ansible.builtin.debug:\n  when: "{condition}"\n'})
    assert [each.fix for each in report.findings if each.rule == "implicit-boolean"] == [fix]


@pytest.mark.parametrize(
    ("definition", "is_found"),
    [
        ({"roles/shop/defaults/main.yml": "x: ''\n"}, True),
        ({"roles/shop/vars/main.yml": "x: [a]\n"}, True),
        ({"roles/shop/defaults/main.yml": "x: true\n"}, False),
        ({"roles/shop/vars/main.yml": "x: ''\nday: 2024-13-01\n"}, True),
        ({"roles/shop/vars/main.yml": "x: ''\nkey: !vault |\n  $ANSIBLE_VAULT\n"}, True),
        ({"roles/shop/defaults/main.yml": "x: '{{ a == b }}'\n"}, False),
        ({"roles/shop/defaults/main.yml": "x: ''\n", "roles/other/defaults/main.yml": "x: false\n"}, False),
        ({MAIN: "- ansible.builtin.set_fact: {x: '{{ y | length }}'}\n- ansible.builtin.debug:\n  when: x\n"}, True),
        ({MAIN: "- set_fact: {x: '{{ a | regex_replace(b) }}'}\n- ansible.builtin.debug:\n  when: x\n"}, True),
        ({"roles/shop/defaults/main.yml": "x: '{{ y }}'\ny: '{{ z }}'\nz: \"{{ lookup('env', 'Z') }}\"\n"}, True),
        ({"roles/shop/defaults/main.yml": "x: '{{ a }}-{{ b }}'\n"}, True),
        ({"roles/shop/defaults/main.yml": "x: '{{ y }}'\ny: '{{ x }}'\n"}, False),
        ({MAIN: "- ansible.builtin.command: a\n  register: x\n- ansible.builtin.debug:\n  when: x\n"}, True),
        ({MAIN: "- ansible.builtin.set_fact: {x: '{{ y | bool }}'}\n- ansible.builtin.debug:\n  when: x\n"}, False),
    ],
)
def test_a_variable_has_the_type_of_all_its_definitions(
    rules: Rules, definition: dict[str, str], *, is_found: bool
) -> None:
    files = {MAIN: "- ansible.builtin.debug:\n  when: x\n", **definition}
    assert ("implicit-boolean" in dict(rules(files))) is is_found


@pytest.mark.parametrize(("kind", "is_found"), [("string", True), ("array", True), ("boolean", False)])
def test_a_field_has_the_type_of_its_crd(rules: Rules, kind: str, *, is_found: bool) -> None:
    crd = f"""\
kind: CustomResourceDefinition
spec:
  group: shop.example.com
  names: {{kind: Shop, plural: shops}}
  versions:
    - name: v1
      schema: {{openAPIV3Schema: {{properties: {{spec: {{properties: {{pullSecret: {{type: {kind}}}}}}}}}}}}}
"""
    files = {"config/crd/bases/shops.yaml": crd, MAIN: "- ansible.builtin.debug:\n  when: pull_secret\n"}
    assert (("implicit-boolean", f"{MAIN}:2") in rules(files)) is is_found


@pytest.mark.parametrize(
    ("version", "module", "is_found"),
    [
        ("2.3.1", "kubernetes.core.k8s", True),
        ("5.2.0", "k8s", True),
        ("==3.2.0", "kubernetes.core.k8s", True),
        ("5.3.0", "kubernetes.core.k8s", False),
        (">=6.0.0", "kubernetes.core.k8s", False),
        ("3.2.0", "kubernetes.core.k8s_info", False),
    ],
)
def test_templates_of_an_old_kubernetes_core_are_found(
    rules: Rules, version: str, module: str, *, is_found: bool
) -> None:
    files = {
        "requirements.yml": f"collections:\n  - {{name: kubernetes.core, version: '{version}'}}\n",
        MAIN: f"- {module}:\n    template: shop.yml.j2\n- {module}: state=present template=a.j2\n",
    }
    found = [place for rule, place in rules(files) if rule == "template-module"]
    assert found == ([f"{MAIN}:2", f"{MAIN}:3"] if is_found else [])


def test_a_number_in_a_field_of_type_text_is_found(rules: Rules) -> None:
    tasks = """\
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        labels:
          size: "{{ size | int }}"
          text: "{{ size | int }}-{{ size }}"
          plain: "{{ size }}"
      data:
        count: "{{ names | length }}"
        safe: "{{ names | length | string }}"
- kubernetes.core.k8s:
    definition:
      kind: Deployment
      spec:
        replicas: "{{ size | int }}"
        template: {spec: {containers: [{env: [{name: SIZE, value: "{{ size | int }}"}]}]}}
"""
    found = [place for rule, place in rules({MAIN: tasks}) if rule == "number-as-text"]
    assert found == [f"{MAIN}:7", f"{MAIN}:11", f"{MAIN}:18"]


def test_such_constructs_are_work_only_on_a_stricter_core(analyse: Analyse, write: Write) -> None:
    report = analyse({MAIN: "- ansible.builtin.debug:\n  when: x | length\n"})
    assert (report.core, [each.rule for each in report.work]) == ("2.18", ["base-image"])
    assert "1 condition that is not a boolean" in report.reasons[-1]
    for image, core, work in (("0.1.0", "2.21", ["implicit-boolean"]), ("0.1.0-core2.18", "2.18", [])):
        write("Dockerfile", f"FROM registry.example.com/ansible-operator-runner:{image}\n")
        report = analyse()
        assert (report.core, [each.rule for each in report.work]) == (core, work)


@pytest.fixture
def found(project: Path, write: Write) -> validation.ValidationResult:
    """The project with several constructs, and an old kubernetes.core installed."""
    conditions = "".join(f"- ansible.builtin.debug:\n  when: x{number} | length\n" for number in range(5))
    write(MAIN, f"{conditions}- kubernetes.core.k8s:\n    template: a.j2\n")
    folder = "home/.ansible/collections/ansible_collections/kubernetes/core"
    write(f"{folder}/MANIFEST.json", '{"collection_info": {"version": "5.0.0"}}')
    environ = {"HOME": str(project / "home")}
    places = _places(project)
    return validation.validate(
        Path("watches.yaml"), environ=environ, cwd=project, search_path=places, features=FEATURE_FIELDS
    )


def _places(project: Path) -> paths.SearchPath:
    environ = {"HOME": str(project / "home")}
    return paths.search_path(cwd=project, roles_path="", collections_path="", environ=environ)


def test_a_warning_for_each_kind_names_the_first_places(
    found: validation.ValidationResult, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_changes, "version", lambda _: "2.21.5")
    monkeypatch.setattr(finding, "version", lambda _: "2.21.5")
    conditions, templates = core_changes.warnings(found, _places(project), {})
    assert conditions.startswith("ansible-core 2.21.5 does not support 5 constructs of roles (implicit-boolean): ")
    assert f"{MAIN}:2: `when`: `x0 | length` is a number, not a boolean" in conditions
    assert "; 2 more. Use ansible-core 2.18" in conditions
    assert "with kubernetes.core 5.0.0 sends the text of the template" in templates
    allowed = {"ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "True"}
    assert core_changes.warnings(found, _places(project), allowed) == [templates]
    monkeypatch.setattr(finding, "version", lambda _: "2.18.9")
    assert core_changes.warnings(found, _places(project), {}) == []


@pytest.mark.parametrize(
    ("condition", "files", "is_proven"),
    [
        ("x is defined", {}, True),
        ("x", {"roles/shop/defaults/main.yml": "x: true\n"}, True),
        ("x", {"roles/shop/defaults/main.yml": "x: '{{ y }}'\ny: '{{ a == b }}'\n"}, True),
        ("x", {}, False),
        ("x | default(true)", {}, False),
        ("x | example.other.anything", {}, False),
        ("x", {"roles/shop/defaults/main.yml": "x: true\n", "roles/shop/vars/main.yml": "x: '{{ y }}'\n"}, False),
    ],
)
def test_an_unknown_type_is_not_proven_and_never_no_obstacle(
    analyse: Analyse, condition: str, files: dict[str, str], *, is_proven: bool
) -> None:
    report = analyse({MAIN: f"- ansible.builtin.debug:\n  when: {condition}\n", **files})
    found = [(each.place, each.need) for each in report.findings if each.rule == "unknown-type"]
    assert found == ([] if is_proven else [(f"{MAIN}:2", "check")])
    expected = "this analysis found no obstacle for 2.21; 2.18 is the default of migrated projects"
    unproven = "2.21 is not proven: this analysis found 1 condition of unknown type"
    assert report.reasons[-1] == (expected if is_proven else unproven)
    assert [each.rule for each in report.work] == ["base-image"]


@pytest.mark.parametrize(
    ("task", "rule", "fix"),
    [
        ("k8s_facts: {kind: Pod}", "removed-module", "use kubernetes.core.k8s_info"),
        ("k8s_status: {api_version: v1}", "short-name", "use operator_sdk.util.k8s_status"),
        ("requeue_after: {time: 1m}", "short-name", "use operator_sdk.util.requeue_after"),
        ("include: other.yml", "removed-module", "use ansible.builtin.include_tasks"),
        (
            "include: other.yml size=1 kind=x",
            "removed-module",
            "use ansible.builtin.include_tasks, with size, kind below `vars`",
        ),
        ("include_tasks: other.yml size=1", "include-argument", "write size below `vars` of the task"),
        ("import_tasks: {file: other.yml, size: 1}", "include-argument", "write size below `vars` of the task"),
        ("include_role: {name: other, size: 1}", "include-argument", "write size below `vars` of the task"),
        ("include_role: {name: other, defaults_from: ../../a.yml}", "role-file", "move the file into defaults"),
        ("include_role: {name: other, vars_from: /opt/ansible/a.yml}", "role-file", "move the file into vars"),
        ("import_role: name=other defaults_from=../a.yml", "role-file", "move the file into defaults"),
        ("debug: {}\n  vars: [{a: 1}]", "vars-list", "write one mapping"),
    ],
)
def test_a_task_that_no_core_accepts_is_reported_with_a_fix_that_works(
    analyse: Analyse, capsys: pytest.CaptureFixture[str], task: str, rule: str, fix: str
) -> None:
    files = {MAIN: f"---\n- {task}\n", "roles/other/tasks/main.yml": "[]\n", "roles/shop/tasks/other.yml": "[]\n"}
    (found,) = [each for each in analyse(files).findings if each.rule not in {"base-image", "missing-collection"}]
    assert (found.rule, found.need, found.line) == (rule, "now", 2 + task.count("\n"))
    assert found.fix.startswith(fix)
    main.main(["validate"])
    assert f"{MAIN}:{found.line}: warning: {found.message}: {found.fix}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "task",
    [
        "operator_sdk.util.k8s_status: {}",
        "include_tasks: \"{{ 'a' if x == 1 else 'b' }}.yml\"",
        "include_tasks: {file: other.yml, apply: {tags: [a]}}",
        "include_role: {name: other, tasks_from: ../x/a.yml, defaults_from: sub/a.yml, public: true}",
        "include_role: {name: other, defaults_from: '{{ kind }}.yml'}",
    ],
)
def test_a_task_that_every_core_accepts_is_not_reported(rules: Rules, task: str) -> None:
    assert (
        rules({MAIN: f"- {task}\n", "roles/other/tasks/main.yml": "[]\n", "roles/shop/tasks/other.yml": "[]\n"}) == []
    )


@pytest.mark.parametrize(
    "files",
    [
        {"roles/shop/meta/main.yml": "collections: [operator_sdk.util]\n"},
        {"roles/shop/library/k8s_status.py": ""},
        {"library/k8s_status.py": ""},
    ],
)
def test_a_short_name_is_found_in_listed_collections_and_own_modules(rules: Rules, files: dict[str, str]) -> None:
    assert rules({MAIN: "- k8s_status: {}\n", **files}) == []


def test_plays_have_removed_includes_and_lists_of_variables(rules: Rules) -> None:
    files = {
        "watches.yaml": "- {group: shop.example.com, version: v1, kind: Shop, playbook: site.yml}\n",
        "site.yml": "- hosts: localhost\n  roles:\n    - role: shop\n      vars:\n      - a: 1\n- include: more.yml\n",
        "more.yml": "- hosts: localhost\n  vars: [{a: 1}]\n",
    }
    assert rules(files) == [("vars-list", "more.yml:2"), ("vars-list", "site.yml:5"), ("removed-module", "site.yml:6")]
