"""A project folder with roles and a playbook, and readers of watches files in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
from runner.core.watches import watch
from runner.core.watches.watch import LoadedWatches, Watch
from runner.values.errors import ConfigError
from tests.kit import editor
from tests.unit.watches.sample import HEAD, OTHER_SPELLINGS, Errors, Load, One


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("roles/memcached", "roles/cleanup", "playbooks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "playbooks/site.yml").write_text("[]\n")
    return tmp_path


@pytest.fixture
def load(project: Path) -> Load:
    def load_text(text: str | bytes, **environ: str) -> LoadedWatches:
        raw = text if isinstance(text, bytes) else text.encode()
        (project / "watches.yaml").write_bytes(raw)
        return watch.load(
            Path("watches.yaml"),
            environ={"HOME": str(project / "home"), **environ},
            cwd=project,
            roles_path="",
            collections_path="",
            features=FEATURE_FIELDS,
        )

    return load_text


@pytest.fixture
def one(load: Load) -> One:
    def load_one(rest: str = "", **environ: str) -> Watch:
        loaded = load(f"{HEAD}{rest}", **environ)
        assert loaded.warnings == ()
        assert editor.is_valid(HEAD + rest) is (OTHER_SPELLINGS.search(rest) is None)
        return loaded.watches[0]

    return load_one


@pytest.fixture
def errors(load: Load) -> Errors:
    def load_wrong(text: str | bytes, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as raised:
            load(text, **environ)
        return str(raised.value).splitlines()

    return load_wrong
