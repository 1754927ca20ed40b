"""Commands typed in a new project's folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.commands import Type
from tests.kit.generated import generate


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project with the kind Memcached, which tests copy."""
    folder = tmp_path_factory.mktemp("made") / "mc"
    generate(folder, [["init", "--domain", "example.com", "--group", "cache", "--kind", "Memcached"]])
    return folder


@pytest.fixture
def typed(typed: Type, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type commands in the folder of a project with the kind Memcached."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return typed
