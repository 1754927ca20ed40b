"""Preimports for modules, and what is left to each of them, in libraries of the test's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engine.warm.modules import preimport
from runner.engine.warm.modules.interpreter import Interpreter

Imported = Callable[[str], preimport.Preimported]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imported:
    """Preimport a library with this text."""
    # Names of folders with code are taken for code, so the library stands below one.
    (tmp_path / "library").mkdir()
    path = (str(tmp_path / "library"), *sys.path)
    monkeypatch.setattr(sys, "path", list(path))
    monkeypatch.setattr(preimport, "ALWAYS", ())
    monkeypatch.chdir(tmp_path)  # no folder with code, as that of a run

    def load(text: str) -> preimport.Preimported:
        (tmp_path / "library" / "own_library.py").write_text(text, encoding="utf-8")
        return preimport.make((), ("own_library",), Interpreter(path, (), lambda *_: None))

    return load


@pytest.fixture(autouse=True)
def forgotten() -> None:
    sys.modules.pop("own_library", None)


def test_a_library_without_side_effects_is_preimported(imported: Imported) -> None:
    assert "own_library" in imported("value = sum(range(10))\n").namespace.shared


def test_a_library_that_keeps_the_traceback_of_a_failed_import_is_preimported(imported: Imported) -> None:
    text = (
        "import traceback\n"
        "try:\n    from os import there_is_no_such_thing\n"
        "except ImportError:\n    said = traceback.format_exc()\n"
        "import ast\n"
        "try:\n    ast.parse('a b')  # as traceback does to point at a line's part\nexcept SyntaxError:\n    pass\n"
    )

    assert "own_library" in imported(text).namespace.shared


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nsubprocess.run(['true'])\n",
        "import os\nif not os.fork(): os._exit(0)\nos.wait()\n",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
        "import os\nos._exit(3)\n",
    ],
)
def test_a_library_with_side_effects_at_import_is_not_preimported(imported: Imported, text: str) -> None:
    assert "own_library" not in imported(text).namespace.shared


def test_a_library_that_reads_variable_state_at_import_is_not_preimported(imported: Imported, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("x", encoding="utf-8")

    assert "own_library" not in imported(f"text = open({str(tmp_path / 'settings')!r}).read()\n").namespace.shared


def test_variables_that_a_library_reads_are_known(imported: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OWN_VARIABLE", "1")

    read = imported("import os\nos.environ.get('OWN_VARIABLE'), os.environ.get('OWN_OTHER')\n").read

    assert {name: read[name] for name in ("OWN_VARIABLE", "OWN_OTHER")} == {"OWN_VARIABLE": "1", "OWN_OTHER": None}
