"""The pages about threats and masking link each claim to tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.places import ROOT

PAGE = ROOT / "docs/threats.md"
MASKING = ROOT / "docs/masking.md"
FILE = re.compile(r"`([\w/]*test_\w+\.py|tests/[\w/]+)`")
NAME = re.compile(r"`(test_\w+)`")
SECTION = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return the text below each heading, without that of the headings below it."""
    _, *parts = SECTION.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield heads and rows of each table."""
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines())
        yield head, rows


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


def test_each_row_of_a_table_with_tests_names_one() -> None:
    rows = [(head, row) for head, rows in tables(PAGE.read_text()) if head[-1] == "tests" for row in rows]
    assert len(rows) >= 25
    assert [row for head, row in rows if len(row) != len(head) or not files(row[-1])] == []


def test_each_threat_and_each_section_about_masking_names_tests() -> None:
    page = PAGE.read_text()
    threats = sections(page.partition("\n## Threats\n")[2].partition("\n## Least privilege\n")[0])
    assert len(threats) >= 12
    assert [title for title, text in threats.items() if not files(text)] == []
    masked = sections(MASKING.read_text())
    assert [title for title, text in masked.items() if not files(text)] == ["Limits of masking"]


def test_each_protection_against_tenants_has_a_test() -> None:
    (rows,) = (rows for head, rows in tables(PAGE.read_text()) if head[0] == "a tenant cannot")
    assert len(rows) >= 7
    for claim, protection, tests in rows:
        assert protection, claim
        assert files(tests), claim


def test_the_page_names_remote_code_execution_where_roles_are_trusted_to_prevent_it() -> None:
    (rows,) = (rows for head, rows in tables(PAGE.read_text()) if head[0] == "a tenant can")
    (row,) = (row for row in rows if "remote code execution" in row[1])
    assert "markUnsafe" in row[0]


def test_a_test_that_does_not_exist_is_found() -> None:
    assert missing("`tests/unit/docs/test_security.py` (`test_a_test_that_does_not_exist_is_found`)") == []
    assert missing("`tests/unit/docs/test_none.py`") == ["tests/unit/docs/test_none.py"]
    assert missing("`tests/unit/docs/test_security.py` (`test_none`)") == ["test_none"]
