"""Preimports for modules, and what is left to each of them, in libraries of the test's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engines.warm.modules import preimport
from runner.engines.warm.modules.module_namespace import Interpreter
from tests.kit.forks import load_plugins, seen

Imported = Callable[[str], preimport.Preimported]


def resolved(folder: Path, *names: str) -> object:
    """Return the names of the modules that are resolved, the problems, and the files that are left."""
    found = preimport.begin(names, folder)()
    return (
        [payload.name.rpartition(".")[2] for payload in found.payloads],
        found.problems,
        [*map(str, folder.iterdir())],
    )


def test_modules_are_resolved_in_a_process_that_leaves_no_file(tmp_path: Path) -> None:
    def act() -> object:
        load_plugins()
        return resolved(tmp_path, "ansible.legacy.slurp", "own.kit.unknown")

    assert seen(act) == [["command", "copy", "file", "slurp", "stat"], [], []]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (lambda *_: os._exit(1), "each run resolves modules itself: their process died, or took more than 60 seconds"),
        (lambda *_: b"" + 1, "each run resolves modules itself: TypeError: can't concat int to bytes"),  # type: ignore[operator]
    ],
)
def test_a_process_that_resolves_no_module_is_reported(
    broken: Callable[..., object], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preimport, "_resolve", broken)

    assert seen(lambda: resolved(tmp_path)) == [[], [problem], []]


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str, str], None]:
    """Write a library with this name and text."""
    # Names of folders with code are taken for code, so the library stands below one.
    (tmp_path / "library").mkdir()

    def write(name: str, text: str) -> None:
        (tmp_path / "library" / f"{name}.py").write_text(text, encoding="utf-8")

    return write


@pytest.fixture
def imported(tmp_path: Path, library: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> Imported:
    """Preimport a library with this text, and another one if there is one."""
    path = (str(tmp_path / "library"), *sys.path)
    monkeypatch.setattr(sys, "path", list(path))
    monkeypatch.chdir(tmp_path)  # no folder with code, as that of a run

    def load(text: str) -> preimport.Preimported:
        library("own_library", text)
        return preimport.make(
            preimport.Resolution(), ("own_library", "harmless_library"), Interpreter(path, (), lambda *_: None)
        )

    return load


@pytest.fixture(autouse=True)
def forgotten() -> None:
    for name in ("own_library", "harmless_library"):
        sys.modules.pop(name, None)


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


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(3600)\n",
        "import time\ntry:\n    time.sleep(3600)\nexcept Exception:\n    pass\n",
        "import socket\nour_end, their_end = socket.socketpair()\nour_end.recv(1)\n",
    ],
)
def test_a_library_whose_import_blocks_is_given_up_and_named_and_others_are_preimported(
    text: str, library: Callable[[str, str], None], imported: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preimport, "_TRIAL_WITHIN", 3.0)  # in which a busy machine imports the others
    library("harmless_library", "value = 1\n")

    found = imported(text)

    assert "own_library" not in found.namespace.shared
    assert "harmless_library" in found.namespace.shared
    assert found.problems == ("the import of own_library takes more than 3 seconds; modules import it themselves",)


@pytest.mark.lengthy
def test_a_library_whose_import_cannot_be_interrupted_is_not_preimported_and_this_is_a_problem(
    imported: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preimport, "_TRIAL_WITHIN", 3.0)  # as above
    monkeypatch.setattr(preimport, "_KILLED_AFTER", 0.2)

    found = imported(
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\ntime.sleep(3600)\n"
    )

    assert "own_library" not in found.namespace.shared
    assert found.problems == ("the trial of the imports of modules died; modules import all that they use",)


def test_a_library_that_reads_variable_state_at_import_is_not_preimported(imported: Imported, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("x", encoding="utf-8")

    assert "own_library" not in imported(f"text = open({str(tmp_path / 'settings')!r}).read()\n").namespace.shared


def test_variables_that_a_library_reads_are_known(imported: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OWN_VARIABLE", "1")

    read = imported("import os\nos.environ.get('OWN_VARIABLE'), os.environ.get('OWN_OTHER')\n").read

    assert {name: read[name] for name in ("OWN_VARIABLE", "OWN_OTHER")} == {"OWN_VARIABLE": "1", "OWN_OTHER": None}
