"""The pages about threats and masking link each claim to tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.kit.places import ROOT

PAGE = ROOT / "docs/threats.md"
MASKING = ROOT / "docs/masking.md"
FILE = re.compile(r"`([\w/]*test_\w+\.py|tests/[\w/]+)`")
NAME = re.compile(r"`(test_\w+)`")


def files(text: str) -> list[Path]:
    """Return the files and folders of tests that a text names."""
    return [ROOT / name for name in FILE.findall(text)]


def functions(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def missing(text: str) -> list[str]:
    """Return the tests that a text names and that do not exist."""
    named = files(text)
    absent = [str(file.relative_to(ROOT)) for file in named if not file.exists()]
    known = {name for file in named if file.is_file() for name in functions(file)}
    return [*absent, *(name for name in NAME.findall(text) if name not in known)]


@pytest.mark.parametrize(
    "block",
    [part for page in (PAGE, MASKING) for part in re.split(r"\n\n|\n(?=\|)", page.read_text()) if "test_" in part],
)
def test_each_test_that_is_named_exists(block: str) -> None:
    assert missing(block) == []
