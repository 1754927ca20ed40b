"""Modules and other plugins that do not exist, and what `validate` asks Ansible about."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.base.config import paths
from runner.base.yamlfile.tree import Problems
from runner.sdk.checks import plugins
from runner.sdk.checks.templates import Kind, Scan, Use

NEEDS = "not found; add it to requirements.yml and run `ansible-galaxy collection install -r requirements.yml`"


def reported(project: Path, names: list[tuple[Kind, str]], collections: tuple[str, ...] = ()) -> list[str]:
    """Return the problems of plugins, each in a line of its own."""
    environ = {"HOME": str(project.parent / "home")}
    places = paths.search_path(
        cwd=project, roles_path="", collections_path=str(project / "collections"), environ=environ
    )
    libraries = (project / "library",)
    uses = [Use(kind, name, "f", line, collections, libraries) for line, (kind, name) in enumerate(names, start=1)]
    problems = Problems()
    plugins.report(Scan(uses, roots={project}), places, project, environ, problems)
    return [line.removeprefix("f:") for _, line in problems.report(strict=False)]


def plugin(project: Path, path: str, text: str = "") -> None:
    file = project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_plugins_with_files_need_no_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_ask", None)
    plugin(tmp_path, "library/own.py")
    plugin(tmp_path, "collections/ansible_collections/a/b/plugins/action/act.py")
    plugin(tmp_path, "collections/ansible_collections/a/b/plugins/modules/sub/mod.py")
    names: list[tuple[Kind, str]] = [
        ("module", "debug"),
        ("module", "ansible.builtin.include_role"),
        ("module", "ansible.legacy.copy"),
        ("module", "operator_sdk.util.k8s_status"),
        ("module", "own"),
        ("module", "act"),
        ("module", "a.b.sub.mod"),
        ("module", "k8s_facts"),
        ("module", "k8s_status"),
        ("filter", "to_json"),
        ("test", "match"),
        ("lookup", "template"),
    ]
    assert reported(tmp_path, names, ("a.b",)) == []


@pytest.mark.lengthy
def test_ansible_decides_about_names_without_a_file(tmp_path: Path) -> None:
    plugin(tmp_path, "collections/ansible_collections/a/b/plugins/modules/thing.py")
    runtime = "plugin_routing:\n  modules:\n    old_thing: {redirect: a.b.thing}\n"
    plugin(tmp_path, "collections/ansible_collections/a/b/meta/runtime.yml", runtime)
    names: list[tuple[Kind, str]] = [
        ("module", "a.b.old_thing"),
        ("module", "a.b.thing"),
        ("module", "a.b.thin"),
        ("module", "debg"),
        ("module", "whne"),
        ("filter", "to_jsn"),
        ("filter", "changed"),
        ("test", "mach"),
        ("lookup", "tempate"),
        ("lookup", "no.such.one"),
        ("filter", "no.such.two"),
        ("module", "zzzzzz"),
        ("module", "thing"),
    ]
    errors = reported(tmp_path, names)
    assert [line for line in errors if "error" in line] == [
        "3: error: no module 'a.b.thin'; did you mean a.b.thing?",
        "4: error: no module 'debg'; did you mean debug?",
        "5: error: no module 'whne'; did you mean when?",
        "6: error: no filter 'to_jsn'; did you mean to_json?",
        "8: error: no test 'mach'; did you mean match?",
        "9: error: no lookup 'tempate'; did you mean template?",
        "12: error: no module 'zzzzzz'",
        "13: error: no module 'thing'; did you mean a.b.thing?",
    ]
    assert [line.partition("; searched")[0] for line in errors if "warning" in line] == [
        "7: warning: changed is a test, which Ansible does not accept as a filter: write `is changed`",
        f"10: warning: no.such.one: collection no.such {NEEDS}",
    ]


@pytest.mark.lengthy
@pytest.mark.parametrize("folder", ["filter_plugins", "set", "collections/ansible_collections/a/b/plugins/filter"])
def test_no_file_of_the_project_is_imported_and_its_filters_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    imported = tmp_path / "imported"
    plugin(tmp_path, f"{folder}/own.py", f"open({str(imported)!r}, 'w')\n")
    plugin(tmp_path, "ansible.cfg", "[defaults]\nfilter_plugins = set\n")
    name = "a.b.nothing" if folder.startswith("collections") else "nothing"
    lines = reported(tmp_path, [("filter", name), ("module", "debg")])
    assert lines == ["2: error: no module 'debg'; did you mean debug?"]
    assert not imported.exists()


def test_an_ansible_that_fails_leaves_the_names_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (line,) = reported(tmp_path, [("module", "debg")])
    assert line.startswith("1: warning: cannot check whether these plugins exist: debg: ansible-core fails: ")
