"""Commands typed in a new project's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.commands import Type


@pytest.fixture
def typed(typed: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type commands in the folder of a project with the kind Memcached."""
    monkeypatch.chdir(tmp_path)
    assert typed("init --domain example.com --project-name mc --group cache --kind Memcached")[0] == 0
    return typed
