"""Each field of watches.yaml has a worked example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from runner.core.watches.declared import FIELDS

_ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _paths(node: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field of a value: `references[].path`."""
    if isinstance(node, list):
        for item in node:
            yield from _paths(item, f"{path}[]" if path else "")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield (below := f"{path}.{name}" if path else str(name))
            yield from _paths(value, below)


def _snippets() -> Iterator[str]:
    """Yield the watches files of examples, and the YAML of the documentation."""
    for file in (_ROOT / "examples").glob("*/watches*.yaml"):
        yield file.read_text()
    for page in (_ROOT / "docs").rglob("*.md"):
        yield from _BLOCK.findall(page.read_text())


def _values(text: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return []  # a fragment with an ellipsis


def test_each_field_of_a_watch_occurs_in_an_example() -> None:
    shown = {path for text in _snippets() for value in _values(text) for path in _paths(value)}
    assert [field.path for section in FIELDS.values() for field in section if field.path not in shown] == []
