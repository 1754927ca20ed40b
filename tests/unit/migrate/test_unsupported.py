"""Constructs that no supported ansible-core accepts, in `migrate` and `validate`; each was tried with ansible-core."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.cli import main
from tests.unit.migrate.projects import Analyse

Rules = Callable[..., list[tuple[str, str]]]
MAIN = "roles/shop/tasks/main.yml"


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
