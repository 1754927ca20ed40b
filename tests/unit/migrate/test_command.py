from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.commands import Type
from tests.unit.migrate.projects import Write

MIGRATED = "FROM example.com/ansible-operator-runner:0.1.0-core2.18\n"


def test_a_migrated_project_needs_nothing(project: Path, write: Write, typed: Type) -> None:
    write("Dockerfile", MIGRATED)
    code, out, _ = typed(f"migrate {project}")
    assert code == 0
    assert out.splitlines()[-1] == "Result for ansible-core 2.18: nothing to do"


def test_work_that_is_left_has_places_and_fixes(
    project: Path, write: Write, monkeypatch: pytest.MonkeyPatch, typed: Type
) -> None:
    write("roles/shop/tasks/main.yml", "- k8s_facts: {kind: Pod}\n- k8s_facts: {kind: Node}\n")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    monkeypatch.chdir(project.parent)
    code, out, _ = typed(f"migrate {project}")
    assert code == 1
    assert out.splitlines() == [
        f"{project.name}: target ansible-core 2.18",
        "  - Dockerfile uses quay.io/operator-framework/ansible-operator:v1.42.3, which contains ansible-core 2.18",
        "  - this analysis found no obstacle for 2.21; 2.18 is the default of migrated projects",
        "",
        "Change before the migration (3):",
        "  Dockerfile:1: the base image is the Go operator's, quay.io/operator-framework/ansible-operator:v1.42.3",
        "    use ansible-operator-runner:0.1.0-core2.18, from your registry",
        "  roles/shop/tasks/main.yml:1: the module k8s_facts was removed (also in roles/shop/tasks/main.yml:2)",
        "    use kubernetes.core.k8s_info",
        "",
        "Result for ansible-core 2.18: 3 changes, 3 mechanical",
    ]
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    assert Path.cwd() == project.parent


@pytest.mark.lengthy
def test_the_report_as_json_has_all_fields(project: Path, write: Write, typed: Type) -> None:
    write("Dockerfile", MIGRATED)
    write("roles/shop/tasks/main.yml", "- debug: {}\n  when: x | length\n- k8s_facts: {}\n")
    code, out, _ = typed(f"migrate {project} --output json")
    report = json.loads(out)
    assert (code, report["work"], report["ansibleCore"]["target"]) == (1, 1, "2.18")
    assert report["findings"][0] == {
        "file": "roles/shop/tasks/main.yml",
        "line": 2,
        "rule": "implicit-boolean",
        "message": "`when`: `x | length` is a number, not a boolean",
        "fix": "write `x | length > 0`",
        "need": "stricter core",
        "automatic": False,
        "work": False,
    }


@pytest.mark.parametrize("folder", ["empty", "nowhere"])
def test_a_folder_that_is_not_a_project_has_exit_code_2(tmp_path: Path, typed: Type, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = typed(f"migrate {tmp_path / folder}")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "is not a" in err
