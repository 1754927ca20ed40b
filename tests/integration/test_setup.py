"""`make setup` finds the Python from which it makes the virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
