"""Order of a run in a pod: what the run's pod gets of the operator's."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_runner.utils.streaming import unstream_dir
from structlog.testing import capture_logs

from runner.app.features import CALLBACKS
from runner.core.engine.job import Job
from runner.core.watches.watch import Content, Playbook, Role
from runner.engines.pod import payload
from runner.engines.pod.engine import _open
from runner.engines.pod.spool import Space

MakeJob = Callable[..., Job]
ENVIRON = {
    "PATH": "/usr/bin",
    "DB_PASSWORD": "hidden",
    "ANSIBLE_GATHERING": "explicit",
    "ANSIBLE_ROLES_PATH": "/opt/ansible/roles",
    "ANSIBLE_OPERATOR_METRICS": "http://127.0.0.1:5050",
    "RELATED_IMAGE_CACHE": "cache:1",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in {
        "roles/main/tasks/main.yml": "[]",
        "roles/other/files/data": "x",
        "roles/main/molecule/default/molecule.yml": "never sent",
        "playbooks/site.yml": "[]",
        "playbooks/vars/all.yml": "{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def order(tmp_path: Path, make_job: MakeJob) -> Callable[..., tuple[dict[str, Any], Path]]:
    """Write an order; return ansible-runner's arguments, and the unpacked private data directory."""

    def write(content: Content, **changes: Any) -> tuple[dict[str, Any], Path]:
        target = tmp_path / "order"
        payload.write(make_job(content=content, token="the-token", **changes), target, ENVIRON, tmp_path, CALLBACKS)
        assert target.stat().st_mode & 0o777 == 0o600
        stream = io.BytesIO(target.read_bytes())
        arguments, size = json.loads(stream.readline()), json.loads(stream.readline())["zipfile"]
        unpacked = tmp_path / "unpacked"
        unpacked.mkdir()
        unstream_dir(stream, size, str(unpacked))
        return arguments["kwargs"], unpacked

    return write


def test_a_role_comes_with_those_beside_it(order: Callable[..., Any], project: Path) -> None:
    arguments, folder = order(Role("main", project / "roles/main"), extra_vars={"size": 3}, verbosity=9)
    (play,) = json.loads((folder / "project" / arguments["playbook"]).read_text())
    assert play == {"hosts": "localhost", "gather_facts": False, "roles": [{"role": "main"}]}
    roles = folder / "project/roles"
    assert (roles / "other/files/data").read_text() == "x"
    assert not (roles / "main/molecule").exists()
    assert "size" in (folder / "env/extravars").read_text()
    assert (arguments["verbosity"], "cmdline" in arguments) == (7, False)


def test_a_new_run_removes_the_orders_that_a_killed_operator_left(make_job: MakeJob) -> None:
    job = make_job()
    (job.run_dir / ".order-x1y2z3/env").mkdir(parents=True)
    for name in (".order-x1y2z3/env/extravars", f".order-{job.ident}-before"):
        (job.run_dir / name).write_text("secret")
    _open(job, Space())
    assert {path.name for path in job.run_dir.iterdir()} == {"env"}


def test_a_playbook_comes_with_the_files_beside_it_and_the_roles(order: Callable[..., Any], project: Path) -> None:
    arguments, folder = order(Playbook(project / "playbooks/site.yml"), ansible_args="--diff")
    assert (arguments["playbook"], arguments["cmdline"]) == ("site.yml", "--diff")
    assert (folder / "project/vars/all.yml").exists()
    assert (folder / "project/roles/main/tasks/main.yml").exists()


def test_the_environment_has_no_secret_and_no_path_of_the_operator(order: Callable[..., Any], project: Path) -> None:
    _, folder = order(Role("main", project / "roles/main"))
    found = json.loads((folder / "env/envvars").read_text())
    assert (found["ANSIBLE_GATHERING"], found["RELATED_IMAGE_CACHE"]) == ("explicit", "cache:1")
    assert not {"PATH", "DB_PASSWORD", "ANSIBLE_ROLES_PATH", "ANSIBLE_OPERATOR_METRICS"} & found.keys()
    for name in ("KUBECONFIG", "PYTHONPATH", "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_LOCAL_TEMP"):
        assert found[name].startswith("/operator/work/run/")


def test_ansibles_own_definitions_decide_which_settings_a_pod_gets(tmp_path: Path) -> None:
    given = {
        "ANSIBLE_FORKS": "7",
        "ANSIBLE_TIMEOUT": "20",
        "ANSIBLE_HOST_KEY_CHECKING": "false",
        "ANSIBLE_VAULT_IDENTITY": "dev",
        "RELATED_IMAGE_KEY": "cache:1",
    }
    kept = {
        "ANSIBLE_HOME": "/home/operator",
        "ANSIBLE_LIBRARY": "/opt/modules",
        "ANSIBLE_MODULE_UTILS": "/opt/module_utils",
        "ANSIBLE_VAULT_PASSWORD_FILE": "/run/secrets/vault",
        "ANSIBLE_GALAXY_SERVER_HUB_TOKEN": "secret",
        "ANSIBLE_GALAXY_SERVER_LIST": "hub",
        "ANSIBLE_HASHI_VAULT_TOKEN": "secret",
        "ANSIBLE_OPERATOR_METRICS": "x",
        "GALAXY_TOKEN": "secret",
    }
    passed = json.loads(payload.configuration({}, {**given, **kept}, tmp_path)["env/envvars"])
    assert {name: passed.get(name) for name in given} == given
    assert not kept.keys() & passed.keys()
    assert payload.unknown_variables({**given, **kept}) == ["ANSIBLE_HASHI_VAULT_TOKEN"]


def test_a_pod_gets_the_configured_ansible_cfg_in_any_encoding_if_it_exists(tmp_path: Path) -> None:
    config = tmp_path / "own.cfg"
    environ = {"ANSIBLE_CONFIG": str(config)}
    assert "project/ansible.cfg" not in payload.configuration({}, environ, tmp_path)
    config.write_bytes("# Größe\n[defaults]\nforks = 3\n".encode("latin-1"))
    assert "forks = 3" in payload.configuration({}, environ, tmp_path)["project/ansible.cfg"]


def test_the_kubeconfig_names_the_agents_port_and_the_runs_token(order: Callable[..., Any], project: Path) -> None:
    _, folder = order(Role("main", project / "roles/main"))
    found = json.loads((folder / "env/kubeconfig").read_text())
    assert found["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:48443"
    assert found["users"][0]["user"]["token"] == "the-token"
    assert (folder / "project/operator/collections/ansible_collections/operator_sdk/util").is_dir()


def test_what_is_no_file_in_any_role_does_not_prevent_runs(project: Path, order: Callable[..., Any]) -> None:
    files = project / "roles/other/files"
    (files / "dangling").symlink_to("/nonexistent")
    (files / "loop").symlink_to("loop")
    (files / "above").symlink_to("../..")
    os.mkfifo(files / "pipe")
    (files / "link").symlink_to("data")
    with capture_logs() as logs:
        _, unpacked = order(Role("main", project / "roles/main"))
    copied = unpacked / "project/roles/other/files"
    assert sorted(each.name for each in copied.iterdir()) == ["data", "link"]
    assert (copied / "link").read_text() == "x"
    assert {Path(line["path"]).name for line in logs} == {"dangling", "loop", "above", "pipe"}


def test_roles_that_link_to_each_other_are_copied_once_in_each(project: Path, order: Callable[..., Any]) -> None:
    (project / "roles/other/files/main").symlink_to("../../main")
    (project / "roles/main/other").symlink_to("../other")
    _, unpacked = order(Role("main", project / "roles/main"))
    roles = unpacked / "project/roles"
    assert (roles / "other/files/main/tasks/main.yml").is_file()
    assert (roles / "main/other/files/data").is_file()
    assert len([*roles.rglob("data")]) == 2


def test_a_file_that_the_operator_cannot_read_does_not_prevent_runs(
    project: Path, order: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access  # the user of this test can be root
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "hidden" and access(path, mode))
    for folder in ("playbooks", "playbooks/vars", "roles/other/files"):
        (project / folder / "hidden").write_text("x")
    with capture_logs() as logs:
        _, unpacked = order(Playbook(project / "playbooks/site.yml"))
    assert (unpacked / "project/vars/all.yml").is_file()
    assert not list(unpacked.rglob("hidden"))
    assert len([line for line in logs if "can be read" in line["event"]]) == 3
