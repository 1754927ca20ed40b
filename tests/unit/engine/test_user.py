"""Runs of a user id without an entry in /etc/passwd."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from runner.agent import user
from runner.core.engine import run_dir
from tests.kit.jobs import job_value


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
