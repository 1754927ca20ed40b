"""A feature or an engine can be removed: its folder, and the lines of the lists that name it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.deletion import FOLDERS, LISTS, without

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_names_a_folder_after_its_removal(folder: str, tmp_path: Path) -> None:
    copy, package = without(folder, tmp_path), f"runner.{folder.replace('/', '.')}"
    assert [path for path in copy.rglob("*.py") if package in path.read_text(encoding="utf-8")] == []
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F", *(f"runner/{path}" for path in LISTS)]
    done = subprocess.run(lint, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
