"""The installed command, started as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.kit.processes import captured
from tests.kit.wait import patience

COMMAND = Path(sys.executable).parent / "ansible-operator"

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    role = tmp_path / "roles/memcached/tasks"
    role.mkdir(parents=True)
    (role / "main.yml").write_text("- name: say\n  ansible.builtin.debug:\n    msg: hello\n")
    (tmp_path / "watches.yaml").write_text("- {group: example.com, version: v1, kind: Memcached, role: memcached}\n")
    return tmp_path


@pytest.fixture
def command(project: Path) -> Command:
    def run(*arguments: str, script: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-o", "pipefail", "-c", script, str(COMMAND)] if script else [str(COMMAND), *arguments]
        clean = {"PATH": os.environ["PATH"], "HOME": str(project), "COLUMNS": "100"}
        return captured(*words, cwd=project, env=clean | environ, timeout=patience())

    return run


def test_the_version_and_those_of_the_dependencies_are_printed(command: Command) -> None:
    assert command("--version").stdout == f"ansible-operator {version('ansible-operator-runner')}\n"
    done = command("version")
    assert done.returncode == 0
    assert f"ansible-core      {version('ansible-core')}\n" in done.stdout


def test_the_package_runs_as_a_module(project: Path) -> None:
    done = captured(sys.executable, "-m", "runner", "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "ansible-operator")


def test_a_reader_that_stops_early_is_not_an_error_and_does_not_hide_the_exit_code(
    command: Command, project: Path
) -> None:
    done = command(script='"$0" run --help | (exec 0<&-; sleep 0)')
    assert (done.returncode, done.stderr) == (0, "")
    (project / "watches.yaml").write_text("text\n")
    done = command(script='"$0" validate | (exec 0<&-; sleep 0)')
    assert (done.returncode, done.stderr) == (2, "")


def test_help_loads_nothing_that_only_a_run_needs(project: Path) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "runner", "run", "--help"]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert "runner.cli.main" in loaded
    for heavy in ("aiohttp", "structlog", "ansible_runner", "kubernetes", "runner.app.app"):
        assert f" {heavy}\n" not in loaded


def test_a_valid_project_has_no_problems(command: Command) -> None:
    done = command("validate")
    assert (done.returncode, done.stdout, done.stderr) == (0, "watches.yaml: 1 watch, 0 errors, 0 warnings\n", "")


def test_each_problem_is_a_line_with_its_place(command: Command, project: Path) -> None:
    (project / "watches.yaml").write_text("- version: v1\n  kind: K\n  role: nowhere\n  manageStatus: ${MANAGE}\n")
    done = command("validate", MANAGE="perhaps", ANSIBLE_ROLES_PATH="/opt/roles")
    assert done.returncode == 2
    tried = f"/opt/roles/nowhere, /opt/roles/roles/nowhere, {project}/roles/nowhere, {project}/nowhere"
    assert done.stdout.splitlines() == [
        f"watches.yaml:3: error: v1, Kind=K: role: 'nowhere' not found; searched {tried}",
        "watches.yaml:4: error: v1, Kind=K: manageStatus: found text ('perhaps'), expected true or false",
        "watches.yaml: 0 watches, 2 errors, 0 warnings",
    ]


def test_strict_makes_warnings_errors(command: Command, project: Path) -> None:
    (project / "roles/memcached/tasks/main.yml").write_text("- debug: {msg: '{{ meta.name }}'}\n")
    warned = command("validate")
    assert warned.returncode == 0
    assert warned.stdout.startswith("roles/memcached/tasks/main.yml:1: warning: meta.name was removed from the SDK")
    refused = command("validate", "--strict")
    assert refused.returncode == 2
    assert refused.stdout.endswith("watches.yaml: 1 watch, 1 error, 0 warnings\n")


@pytest.mark.skipif(version("ansible-core").startswith("2.18."), reason="ansible-core 2.18 accepts such conditions")
def test_validate_finds_conditions_that_the_installed_ansible_core_rejects(command: Command, project: Path) -> None:
    (project / "roles/memcached/tasks/main.yml").write_text("- debug: {}\n  when: names | length\n")
    found = (
        f"ansible-core {version('ansible-core')} does not support a construct of roles (implicit-boolean): "
        "roles/memcached/tasks/main.yml:2: `when`: `names | length` is a number, not a boolean"
    )
    assert command("validate").stdout.startswith(f"warning: {found}")


def test_a_bad_value_in_the_environment_is_a_warning(command: Command) -> None:
    done = command("validate", ANSIBLE_OPERATOR_RECONCILE_PERIOD="soon")
    assert done.returncode == 0
    assert done.stdout.startswith("warning: environment variable ANSIBLE_OPERATOR_RECONCILE_PERIOD is ignored: ")


def test_a_watches_file_with_errors_stops_run_with_all_of_them(command: Command, project: Path) -> None:
    (project / "watches.yaml").write_text("- kind: K\n  role: memcached\n- version: v1\n  role: memcached\n")
    done = command("run")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("error: watches.yaml:1: watch 1: version: missing or empty: set the API version")
    assert second.startswith("error: watches.yaml:3: watch 2: kind: missing or empty: set the kind, such as Memcached")
