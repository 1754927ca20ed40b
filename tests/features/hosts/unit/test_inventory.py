"""Inventory and files of a run with hosts, as Ansible and ssh read them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.core.engine import run_dir
from runner.core.engine.job import Job
from runner.core.engine.run_dir import RunFolder
from runner.core.watches.watch import Role
from runner.features.hosts import inventory
from runner.features.hosts.inventory import Credentials, Host, Hosts
from tests.kit.jobs import job_value

SECRET = Credentials("the key", "the certificate", "deploy", "pass {{ 1 }}", "become: '\"", "web ssh-rsa AAAA")
PLAIN = Hosts(
    "web",
    (
        Host("one", "one.example.com", "10.0.0.1", vars={"size": 3, "text": "{{ 1 + 1 }}"}, groups=("north",)),
        Host("two", "fd00::2", "fd00::2", port=2222, user="ops"),
        Host("old", "10.0.0.9", "10.0.0.9", is_removed=True, key="ssh-ed25519 BBBB"),
    ),
    None,
    SECRET,
    first_use=False,
)


def prepare(folder: Path, of_hosts: Hosts = PLAIN, **different: Any) -> tuple[Job, RunFolder]:
    job = job_value(run_dir=folder / "run %1", inventory=of_hosts, **different)
    return job, run_dir.prepare(job, "id", {"TMPDIR": str(folder)})


def listed(folder: RunFolder) -> dict[str, Any]:
    """Return what Ansible reads from the inventories."""
    program = str(Path(sys.executable).with_name("ansible-inventory"))
    sources = [option for each in folder.inventories for option in ("-i", str(each))]
    environ = {**os.environ, "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true"}
    done = subprocess.run([program, "--list", *sources], check=True, capture_output=True, text=True, env=environ)
    # ansible-inventory marks strings that are never templated.
    found: dict[str, Any] = json.loads(done.stdout, object_hook=lambda each: each.get("__ansible_unsafe", each))
    return found


@pytest.mark.lengthy
def test_ansible_reads_hosts_groups_and_credentials(tmp_path: Path) -> None:
    _, folder = prepare(tmp_path)
    found = listed(folder)
    variables = found["_meta"]["hostvars"]
    assert {name: found[name]["hosts"] for name in ("web", "north", "removed", "ungrouped")} == {
        "web": ["one", "two"],
        "north": ["one"],
        "removed": ["old"],
        "ungrouped": ["localhost"],
    }
    assert variables["one"]["text"] == "{{ 1 + 1 }}"
    assert (variables["one"]["size"], variables["one"]["ansible_host"]) == (3, "10.0.0.1")
    assert (variables["two"]["ansible_port"], variables["two"]["ansible_user"]) == (2222, "ops")
    for name in ("one", "two", "old"):
        assert variables[name]["ansible_password"] == SECRET.password
        assert variables[name]["ansible_become_password"] == SECRET.become_password
        assert Path(variables[name]["ansible_ssh_private_key_file"]).read_text() == SECRET.private_key
        assert variables[name]["ansible_pipelining"] is True
    assert variables["old"]["ansible_user"] == "deploy"
    assert {"ansible_password", "ansible_pipelining"}.isdisjoint(variables["localhost"])


def options(inventory: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the options of ssh for a host, as ssh itself reads them."""
    arguments = shlex.split(inventory["_meta"]["hostvars"][name]["ansible_ssh_args"])
    done = subprocess.run(["ssh", *arguments, "-G", "10.0.0.1"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pairs = [line.partition(" ") for line in done.stdout.splitlines()]
    return {key: value for key, _, value in pairs}


@pytest.mark.lengthy
def test_ssh_trusts_only_the_files_of_the_run(tmp_path: Path) -> None:
    _, folder = prepare(tmp_path)
    inventory = listed(folder)
    found = options(inventory, "two")
    known = folder.path / "tmp/hosts/known_hosts"
    assert known.read_text() == "web ssh-rsa AAAA\n10.0.0.9 ssh-ed25519 BBBB\n"
    assert found["userknownhostsfile"].strip('"') == str(known)
    assert found["globalknownhostsfile"] == "/dev/null"
    assert (found["hostkeyalias"], found["stricthostkeychecking"]) == ("[fd00::2]:2222", "true")
    assert (found["identitiesonly"], found["forwardagent"], found["identityagent"]) == ("yes", "no", "none")
    assert options(inventory, "one")["hostkeyalias"] == "one.example.com"
    _, folder = prepare(tmp_path, replace(PLAIN, credentials=Credentials(password="x"), first_use=True))
    found = options(listed(folder), "one")
    assert (found["identityfile"], found["stricthostkeychecking"]) == ("none", "accept-new")


def test_secrets_are_in_private_files_that_the_end_of_the_run_removes(tmp_path: Path) -> None:
    job, folder = prepare(tmp_path, ansible_args="--diff")
    written = {path: path.read_text() for path in job.run_dir.rglob("*") if path.is_file()}
    secrets = SECRET.secrets
    of_secrets = [path for path, text in written.items() if any(json.dumps(each)[1:-1] in text for each in secrets)]
    assert len(of_secrets) == 2
    for path in of_secrets:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.is_relative_to(job.run_dir / "tmp")
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not any(each in " ".join((folder.ansible_args, *folder.environment.values())) for each in secrets)
    run_dir.clear(job.run_dir)
    assert not any(path.exists() for path in of_secrets)


@pytest.mark.lengthy
def test_a_role_runs_on_the_group_and_a_finalizer_on_removed_hosts_too(tmp_path: Path) -> None:
    role = tmp_path / "roles/web"
    role.mkdir(parents=True)
    job, folder = prepare(tmp_path, replace(PLAIN, finalizing=True), content=Role("web", role))
    (play,) = json.loads(folder.playbook.read_text())
    assert play["hosts"] == "web"
    found = listed(folder)
    assert (found["web"]["hosts"], found["removed"]["hosts"]) == (["one", "two", "old"], ["old"])
    assert inventory.REMOVED == "removed"
    assert isinstance(job.inventory, Hosts)
    assert job.inventory.removed == ("old",)


@pytest.mark.lengthy
def test_the_inventory_of_the_project_comes_last_and_its_variables_win(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    own.write_text("web: {vars: {ansible_password: of the project, ansible_pipelining: false}, hosts: {three: {}}}\n")
    _, folder = prepare(tmp_path, replace(PLAIN, file=own))
    found = listed(folder)
    assert found["web"]["hosts"] == ["one", "two", "three"]
    of_one = found["_meta"]["hostvars"]["one"]
    assert (of_one["ansible_password"], of_one["ansible_pipelining"]) == ("of the project", False)


def test_the_keys_that_hosts_presented_are_read(tmp_path: Path) -> None:
    job, _ = prepare(tmp_path)
    temporary = job.run_dir / "tmp"
    with (temporary / "hosts/known_hosts").open("a") as file:
        file.write("[10.0.0.1]:2222 ssh-ed25519 CCCC\nbroken\n")
    assert inventory.accepted_keys(temporary) == {
        "web": "ssh-rsa AAAA",
        "10.0.0.9": "ssh-ed25519 BBBB",
        "[10.0.0.1]:2222": "ssh-ed25519 CCCC",
    }
    run_dir.clear(job.run_dir)
    assert inventory.accepted_keys(temporary) == {}


def test_facts_of_a_former_machine_are_dropped_and_others_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / run_dir.FACTS

    def left(*of_run: Host, **files: str) -> list[str]:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        inventory.drop_facts(replace(PLAIN, hosts=of_run), folder)
        return sorted(each.name for each in folder.iterdir())

    db, web = Host("db", "10.0.0.1", "10.0.0.1"), Host("web", "web.example.com", "10.0.0.2")
    assert left(db, web, s1_db="of an older version", localhost="kept") == ["localhost"]
    assert left(db, web, s1_db="x", web="x") == ["localhost", "s1_db", "web"]
    assert left(db) == ["localhost", "s1_db", "web"]
    assert left(replace(db, written="10.0.0.9", address="10.0.0.9"), web) == ["localhost", "web"]
    assert left(replace(web, port=2222)) == ["localhost"]
    assert left(web, s1_web="x") == ["localhost"], "another port"
    assert left(web, s1_web="x") == ["localhost", "s1_web"]
    assert left(replace(web, address="10.0.0.3")) == ["localhost"], "the name resolves to another machine"
    (tmp_path / "facts.json").write_text("[]")
    assert left(web, s1_web="x") == ["localhost"]
