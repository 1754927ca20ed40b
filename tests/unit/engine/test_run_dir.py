"""The folder of a run: its files, their modes, and the environment and the user of its processes."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.agent import user
from runner.core.engine import run_dir
from runner.core.engine.job import Job
from runner.core.engine.processes import MARKER
from runner.core.watches.watch import Role
from runner.values.errors import EngineError
from tests.kit.jobs import job_value

MakeJob = Callable[..., Job]
ENVIRONMENT = {"PATH": "/usr/bin", "HOME": "/home/ansible"}


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    return {
        str(found.relative_to(path)): stat.S_IMODE(found.lstat().st_mode)
        for found in path.rglob("*")
        if not found.is_symlink()
    }


def test_folders_and_files_are_private_whatever_the_umask(make_job: MakeJob, tmp_path: Path, umask: int) -> None:
    job = make_job(content=Role("r", tmp_path / "roles" / "r"), ansible_args="--diff")

    run_dir.prepare(job, "id", ENVIRONMENT)

    found = modes(tmp_path)
    assert {found[name] for name in found if (tmp_path / name).is_dir()} == {0o700}
    assert {found[name] for name in found if not (tmp_path / name).is_dir()} == {0o600}
    assert {path.name for path in (job.run_dir / "env").iterdir()} == {
        "cmdline",
        "envvars",
        "extravars",
        "kubeconfig",
        "settings",
    }


def test_nothing_of_an_earlier_run_is_left_beside_its_artifacts(make_job: MakeJob) -> None:
    job = make_job(ansible_args="--diff")
    run_dir.prepare(job, "id", ENVIRONMENT)
    for stale in ("env/passwords", "env/ssh_key", "inventory/old", "project/ansible.cfg", "tmp/x", "args"):
        (job.run_dir / stale).write_text("stale")
    (job.run_dir / "artifacts" / "run-1").mkdir()
    (job.run_dir / "artifacts" / "run-1" / "stdout").write_text("kept")

    run_dir.prepare(make_job(ident="run-2"), "id", ENVIRONMENT)

    left = {str(path.relative_to(job.run_dir)) for path in job.run_dir.rglob("*") if path.is_file()}
    assert left == {
        "env/envvars",
        "env/extravars",
        "env/kubeconfig",
        "env/settings",
        "inventory/hosts",
        "artifacts/run-1/stdout",
    }


def test_the_environment_is_of_the_operator_then_of_the_job_then_of_the_run_folder(make_job: MakeJob) -> None:
    job = make_job(environment={"HOME": "/other", "A": "b", "KUBECONFIG": "/not/this"})

    folder = run_dir.prepare(job, "id", {**ENVIRONMENT, "PYTHONPATH": "/own"})

    kubeconfig = str(job.run_dir / "env" / "kubeconfig")
    assert folder.environment["PATH"] == "/usr/bin"
    assert folder.environment["HOME"] == "/other"
    assert folder.environment["KUBECONFIG"] == folder.environment["K8S_AUTH_KUBECONFIG"] == kubeconfig
    assert folder.environment[MARKER] == "id"
    assert folder.environment["PYTHONPATH"].startswith("/own:")
    assert folder.environment["ANSIBLE_NOCOLOR"] == "1"
    envvars = json.loads((job.run_dir / "env" / "envvars").read_text())
    assert envvars["A"] == "b"
    assert envvars.items() <= folder.environment.items()


def test_temporary_files_of_clients_are_removed_with_the_run_unless_the_user_sets_a_folder(make_job: MakeJob) -> None:
    folder = run_dir.prepare(make_job(environment={"TMPDIR": ""}), "id", ENVIRONMENT)
    kept = Path(folder.environment["TMPDIR"]), Path(folder.environment["KUBECACHEDIR"])
    assert [path.stat().st_mode & 0o777 for path in (kept[0], kept[0].parent)] == [0o700, 0o700]
    assert kept[1] == folder.path / "tmp" / "kube"
    (kept[0] / "osrcp-1.json").touch()
    kept[1].mkdir()
    run_dir.clear(folder.path)
    assert not any(path.exists() for path in kept)
    own = {"TMPDIR": "/large", "KUBECACHEDIR": "/cache"}
    assert own.items() <= run_dir.prepare(make_job(), "id", {**ENVIRONMENT, **own}).environment.items()


def test_a_socket_among_temporary_files_is_possible_however_long_the_objects_name(make_job: MakeJob) -> None:
    job = make_job(environment={"TMPDIR": ""})
    deep = job.run_dir / ("n" * 200)
    folder = run_dir.prepare(replace(job, run_dir=deep), "id", ENVIRONMENT)
    of_multiprocessing = Path(folder.environment["TMPDIR"], "pymp-12345678")
    of_multiprocessing.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(of_multiprocessing / "listener-12345678"))
    run_dir.clear(folder.path)
    assert not of_multiprocessing.parent.exists()


@pytest.mark.parametrize("name", ["ANSIBLE_FORCE_COLOR", "ANSIBLE_NOCOLOR", "NO_COLOR"])
def test_variables_that_force_colours_are_respected(make_job: MakeJob, name: str) -> None:
    folder = run_dir.prepare(make_job(), "id", {name: "x"})

    assert folder.environment.get("ANSIBLE_NOCOLOR", "x") == "x"


@pytest.mark.parametrize(
    ("path", "gathering", "name", "facts"),
    [
        ("/opt/ansible/roles/memcached", "", "memcached", True),
        ("/opt/ansible/roles/memcached", "explicit", "memcached", False),
        ("/c/ansible_collections/example/cache/roles/memcached", "implicit", "example.cache.memcached", True),
    ],
)
def test_a_role_gets_a_playbook(make_job: MakeJob, path: str, gathering: str, name: str, facts: Any) -> None:
    job = make_job(content=Role("memcached", Path(path)), environment={"ANSIBLE_GATHERING": gathering})

    folder = run_dir.prepare(job, "id", ENVIRONMENT)

    assert folder.playbook == job.run_dir / "project" / "main.yml"
    assert yaml.safe_load(folder.playbook.read_text()) == [
        {"hosts": "localhost", "gather_facts": facts, "roles": [{"role": name}]},
    ]
    roles = job.run_dir / "project" / "roles"
    assert roles.is_symlink() == (name == "memcached")
    if roles.is_symlink():
        assert roles.readlink() == Path("/opt/ansible/roles")


@pytest.mark.parametrize(
    ("different", "problem"),
    [
        *(({"ident": ident}, "cannot name a run") for ident in ("", ".", "..", "a/b", "latest")),
        ({"run_dir": Path("/tmp/a/../b")}, "cannot be the run folder"),
        ({"run_dir": Path("/proc/run")}, "the run folder /proc/run cannot be written"),
    ],
)
def test_a_folder_that_cannot_be_that_of_a_run_is_refused(
    make_job: MakeJob, different: dict[str, Any], problem: str
) -> None:
    with pytest.raises(EngineError, match=problem):
        run_dir.prepare(make_job(**different), "id", ENVIRONMENT)


def test_a_folder_that_is_a_link_is_refused(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job()
    job.run_dir.parent.mkdir(parents=True)
    job.run_dir.symlink_to(tmp_path)
    with pytest.raises(EngineError, match="is not a folder of our own"):
        run_dir.prepare(job, "id", ENVIRONMENT)


def test_values_that_cannot_be_written_leave_no_kubeconfig(make_job: MakeJob) -> None:
    job = make_job(extra_vars={"a": b"bytes"})
    with pytest.raises(EngineError, match="a bytes cannot be an extra var"):
        run_dir.prepare(job, "id", ENVIRONMENT)
    assert not (job.run_dir / "env" / "kubeconfig").exists()


def test_the_inventory_is_localhost_with_ansibles_own_python_or_that_of_the_user(make_job: MakeJob) -> None:
    folder = run_dir.prepare(make_job(), "id", ENVIRONMENT)
    assert folder.playbook == Path("/opt/ansible/playbook.yml"), "a playbook is run from where it is"
    assert folder.inventories[0].read_text() == (
        "localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}} "
        f"ansible_remote_tmp={folder.path / 'tmp'}\n"
    )
    folder = run_dir.prepare(make_job(environment={"ANSIBLE_INVENTORY": "/own/inventory"}), "id", ENVIRONMENT)
    assert folder.inventories == (Path("/own/inventory"),)
    assert list((folder.path / "inventory").iterdir()) == []


@pytest.mark.parametrize(("asked", "used"), [(-1, 0), (0, 0), (4, 4), (7, 7), (99, 7)])
def test_verbosity_stays_within_ansibles_own(make_job: MakeJob, asked: int, used: int) -> None:
    assert run_dir.prepare(make_job(verbosity=asked), "id", ENVIRONMENT).verbosity == used


def test_what_a_run_alone_may_use_is_found_until_it_is_cleared(make_job: MakeJob, tmp_path: Path) -> None:
    here, cleared = make_job(), make_job(run_dir=tmp_path / "runner" / "v1" / "Secret" / "n" / "s")
    run_dir.prepare(here, "its run", ENVIRONMENT)
    folder = run_dir.prepare(cleared, "other", ENVIRONMENT)
    run_dir.clear(folder.path)
    assert not folder.kubeconfig.exists()
    assert not (folder.path / "tmp").exists()
    assert not (folder.path / "env" / "extravars").exists()
    assert run_dir.unfinished(tmp_path) == [(here.run_dir, "its run")]


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process have a user id without an entry."""

    def find(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", find)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


def test_a_user_id_with_an_entry_keeps_its_name() -> None:
    assert user.variables({}) == {}


@pytest.mark.usefixtures("nameless")
def test_runs_of_both_engines_have_the_name(tmp_path: Path) -> None:
    found = run_dir.prepare(job_value(run_dir=tmp_path / "run"), "id", {"TMPDIR": str(tmp_path)}).environment
    assert (found["USER"], found["LOGNAME"]) == ("ansible", "ansible")
    shared = run_dir.shared_environment({"LOGNAME": "mine"}, {})
    assert (shared["USER"], shared["LOGNAME"]) == ("ansible", "mine")


@pytest.mark.usefixtures("nameless")
def test_programs_find_an_entry_of_the_user_if_the_library_for_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib/x86_64-linux-gnu/libnss_wrapper.so"
    assert user.wrapper({}, tmp_path, [tmp_path]) == {}
    library.parent.mkdir(parents=True)
    library.touch()
    found = user.wrapper({"LD_PRELOAD": "/other.so"}, tmp_path / "passwd", [tmp_path])
    assert found == {
        "LD_PRELOAD": f"/other.so {library}",
        "NSS_WRAPPER_PASSWD": str(tmp_path / "passwd"),
        "NSS_WRAPPER_GROUP": "/etc/group",
    }
    monkeypatch.setattr(user, "wrapper", lambda _, file: {**found, "NSS_WRAPPER_PASSWD": str(file)})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = run_dir.prepare(job_value(run_dir=tmp_path / "run"), "id", {"HOME": "/opt/ansible"})
    written = Path(folder.environment["NSS_WRAPPER_PASSWD"])
    uid, gid = os.geteuid(), os.getegid()
    assert written.read_text().splitlines()[-1] == f"ansible-{uid}:x:{uid}:{gid}::/opt/ansible:/bin/sh"
    assert run_dir.shared_environment({}, {})["NSS_WRAPPER_PASSWD"] == str(written), "the same for all runs"


def test_a_user_with_an_entry_needs_no_library(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnss_wrapper.so").touch()
    assert user.wrapper({}, tmp_path, [tmp_path]) == {}
