"""No template, example or page sets a removed flag, and `migrate` proposes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.config.options import PREFIX, REMOVED

_ROOT = Path(__file__).parents[3]
_FOLDERS = ("runner/sdk", "examples", "docs", "config", "hack")
_TEXTS = {".md", ".py", ".yaml", ".yml", ".toml", ".tpl", ""}


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    files = (path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*"))
    return {path: path.read_text(errors="replace") for path in files if path.is_file() and path.suffix in _TEXTS}


@pytest.mark.parametrize("name", REMOVED)
def test_nothing_sets_a_removed_flag(texts: dict[Path, str], name: str) -> None:
    forms = (f"--{name}", PREFIX + name.replace("-", "_").upper())
    named = [path for path, text in texts.items() if any(form in text for form in forms)]
    assert [path.relative_to(_ROOT) for path in named if "decisions" not in path.parts] == []
