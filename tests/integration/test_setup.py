"""`make setup` finds the Python from which it makes the virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.kit.places import ROOT
from tests.kit.processes import captured


@pytest.mark.parametrize("wanted", [(), (f"{sys.version_info[0]}.{sys.version_info[1]}",)])
def test_the_python_of_an_activated_environment_is_not_the_one_that_setup_uses_and_deletes(
    tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    activated = tmp_path / ".venv"
    venv.create(activated, with_pip=False, symlinks=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    environment = {**kept, "PATH": f"{activated / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    find = [str(ROOT / "hack/find-python"), *wanted]
    found = subprocess.run(
        find, env=environment | {"VIRTUAL_ENV": str(activated)}, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert not Path(found).is_relative_to(activated)
    shutil.rmtree(activated)
    subprocess.run([found, "-m", "venv", "--without-pip", str(activated)], check=True)
    later = subprocess.run(find, env=kept, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(later).resolve() == Path(found).resolve()


def test_make_venv_installs_packages_only_when_it_is_told_to(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (
        ("python-without-venv", 'case "$*" in "-m venv"*) exit 1 ;; esac; exec python3 "$@"'),
        ("id", "echo 0"),
        ("apt-get", f"echo $* >>{tmp_path}/installed"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    copy = tmp_path / "repository"
    for part in ("hack/make-venv", "requirements/core-2.21.txt", "pyproject.toml"):
        (copy / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, copy / part)
    (copy / "hack/find-python").write_text(f"#!/bin/sh\necho {programs}/python-without-venv\n")
    (copy / "hack/find-python").chmod(0o755)
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def make(**more: str) -> str:
        command = [str(copy / "hack/make-venv"), str(tmp_path / "environment"), "2.21"]
        done = captured(*command, env={**environ, **more})
        assert done.returncode == 1
        return done.stderr

    assert "apt install python3-venv" in make(INSTALL_PACKAGES="")
    assert not (tmp_path / "installed").exists()
    make(INSTALL_PACKAGES="1")
    assert "install -y -q python3-venv" in (tmp_path / "installed").read_text()
