"""Commands typed in a new project's folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from runner.cli import main
from tests.unit.schema.typed import Type


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Type:
    """Type commands in the folder of a project with the kind Memcached."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> tuple[int, str, str]:
        code = main.main(shlex.split(line))
        told = capsys.readouterr()
        return code, told.out, told.err

    assert run("init --domain example.com --project-name mc --group cache --kind Memcached")[0] == 0
    return run
