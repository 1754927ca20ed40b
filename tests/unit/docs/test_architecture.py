"""The architecture page names files and functions that exist, and few of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.kit.places import ROOT

PAGE = ROOT / "docs/architecture.md"
ROW = re.compile(r"^\| \d+ \| \[([^]]+)\]\(\.\./([^)]+)\) \| ([^|]+) \|", re.MULTILINE)


def steps() -> list[tuple[str, str, list[str]]]:
    return [(text, file, re.findall(r"`([^`]+)`", names)) for text, file, names in ROW.findall(PAGE.read_text())]


def symbols(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_each_file_and_function_on_the_way_of_an_event_exists() -> None:
    found = steps()
    assert len(found) == len(re.findall(r"^\| \d+ \|", PAGE.read_text(), re.MULTILINE))
    for text, file, names in found:
        assert text == file
        assert names, f"{file}: names no function"
        assert set(names) <= symbols(ROOT / file), file


def test_each_package_is_described() -> None:
    groups = {"base", "core", "engines", "features", "sdk"}
    tops = {path.parent.name for path in (ROOT / "runner").glob("*/__init__.py")} - groups
    below = {f"{name}/{path.parent.name}" for name in groups for path in (ROOT / "runner" / name).glob("*/__init__.py")}
    table = PAGE.read_text().partition("## Packages")[2].partition("## ")[0]
    described = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`([\w/]+)`", row)
    }
    assert described == tops | below
