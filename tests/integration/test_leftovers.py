"""What tests leave behind is named at the end of their session, with the test, and its processes end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.places import ROOT
from tests.kit.processes import captured
from tests.kit.wait import wait_until

CONFTEST = """
from tests.kit import leftovers
leftovers._ENDING = 0.5
from tests.kit.leftovers import register as pytest_configure
"""
TIDY = """
import socket, subprocess, tempfile
def test_tidy():
    with tempfile.TemporaryDirectory(), socket.create_server(("127.0.0.1", 0)):
        subprocess.run(["true"], check=True)
"""
UNTIDY = """
import os, pathlib, socket, subprocess, tempfile
kept = []
def test_process():
    started = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path("pid").write_text(str(started.pid))
    started.returncode = 0 # nobody waits for it
    assert False
def test_folder():
    kept.append(tempfile.mkdtemp())
def test_port():
    kept.append(socket.create_server(("127.0.0.1", 0)))
"""


def _run(folder: Path, text: str, *options: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py", *options]
    (folder / "tmp").mkdir()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")}
    return captured(*command, cwd=folder, env=environ).stdout


def test_leftovers_are_named_with_their_test_also_when_it_fails(tmp_path: Path) -> None:
    said = _run(tmp_path, UNTIDY, "-n1")

    pid = (tmp_path / "pid").read_text()
    assert "LEFTOVERS" in said, said
    assert f"process {pid} of test_it.py::test_process (call): sleep 1000" in said
    assert "of test_it.py::test_folder (call)" in said
    assert "on which this process listens" in said
    wait_until(lambda: not Path("/proc", pid, "cmdline").exists() or not Path("/proc", pid, "cmdline").read_bytes())


def test_tests_that_leave_nothing_say_nothing(tmp_path: Path) -> None:
    said = _run(tmp_path, TIDY)

    assert "1 passed" in said
    assert "LEFTOVERS" not in said
