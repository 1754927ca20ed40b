"""What may import what: helpers of tests are in tests/kit, or beside the tests of one area."""

from __future__ import annotations

import re

from tests.kit.places import ROOT

_IMPORT = re.compile(r"^\s*(?:from|import) (tests[\w.]*)(?: import (\w+))?", re.MULTILINE)


def _imported(*folders: str) -> set[str]:
    """Modules of tests that are imported in these folders, as `importing file: imported module`."""
    return {
        f"{file.relative_to(ROOT)}: {'.'.join(filter(None, found.groups()))}"
        for folder in folders
        for file in (ROOT / folder).rglob("*.py")
        for found in _IMPORT.finditer(file.read_text(encoding="utf-8"))
    }


def test_no_module_imports_from_a_conftest() -> None:
    assert {each for each in _imported("bench", "hack", "tests") if "conftest" in each.partition(": ")[2]} == set()


def test_benchmarks_scripts_and_the_demo_import_nothing_of_tests_but_the_kit() -> None:
    imported = _imported("bench", "hack")
    assert any(each.startswith("hack/demo.py") for each in imported)
    assert {each for each in imported if not each.partition(": ")[2].startswith("tests.kit.")} == set()
