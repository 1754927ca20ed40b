"""A failed test of `.ci/run` is repeated once, alone, after all others, and never in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import once_more
from tests.kit.places import ROOT
from tests.kit.processes import merged

CONFTEST = "from tests.kit.once_more import register as pytest_configure"
FIRST_TIME = """
import pathlib, pytest

def is_first(name):
    mark = pathlib.Path(__file__).parent / name
    was_there = mark.exists()
    mark.touch()
    return not was_there
"""
PASSES = "def test_passes(): pass\n"
FLAKY = """
@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("address", ["a@b"])
def test_flaky(address):
    assert not is_first("call"), "too late\\nby a second"
"""
FLAKY_FIXTURE = """
@pytest.fixture(scope="session")
def cluster():
    assert "{when}" == "teardown" or not is_first("setup"), "no cluster"
    yield
    assert "{when}" == "setup" or not is_first("teardown"), "no cluster"

def test_it(cluster): pass
"""
SKIPPED_LATER = """
def test_skipped_later():
    assert not is_first("skipped")
    pytest.skip("not today")
"""
BROKEN = "def test_broken(): assert 1 == 2\n"
CRASH = "def test_crash(): __import__('os')._exit(3)\n"


class Run:
    """What `.ci/run` does with a folder of tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.failed, self.flaky = folder / "failed", folder / "flaky.txt"
        self._environ = {**os.environ, "PYTHONPATH": str(ROOT), "ANSIBLE_OPERATOR_ENGINE": "exec"}
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text("[pytest]\n")

    def tests(self, text: str, *options: str, noted: bool = True) -> subprocess.CompletedProcess[str]:
        (self._folder / "test_it.py").write_text(FIRST_TIME + text)
        file = str(self.failed) if noted else ""
        return self._run("-m", "pytest", "-p", "no:cacheprovider", *options, **{once_more.FILE: file})

    def end(self) -> subprocess.CompletedProcess[str]:
        return self._run("-m", "tests.kit.once_more", str(self.failed), str(self.flaky))

    def _run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return merged(sys.executable, *arguments, cwd=self._folder, env=self._environ | environ)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_failed_test_is_repeated_and_listed_if_it_passes_then_and_fails_the_run_if_not(run: Run) -> None:
    tests, end = run.tests(PASSES + FLAKY + BROKEN + SKIPPED_LATER, "-n2", "--dist=loadgroup"), run.end()

    assert tests.returncode == 0
    assert "3 failed, 1 passed" in tests.stdout
    assert end.returncode == once_more.FAILED, end.stdout
    twice = end.stdout.partition("FAILED twice")[2]
    assert "test_broken" in twice
    assert "test_skipped_later" in twice
    name, cause = run.flaky.read_text().splitlines()
    assert name.startswith("test_it.py::test_flaky[a@b] (")
    assert name.endswith(", engine exec)")
    assert cause == "    test_it.py:14: AssertionError: too late"


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_errors_of_fixtures_of_a_session_are_repeated(run: Run, when: str) -> None:
    tests, end = run.tests(FLAKY_FIXTURE.format(when=when)), run.end()

    assert (tests.returncode, end.returncode) == (0, 0)
    assert "test_it.py::test_it (" in run.flaky.read_text()
    assert "AssertionError: no cluster" in run.flaky.read_text()


def test_a_crashed_worker_fails_its_part_and_the_run(run: Run) -> None:
    tests, end = run.tests(FLAKY + CRASH, "-n1"), run.end()

    assert tests.returncode != 0
    assert end.returncode == once_more.DEFECT
    assert "test_crash" in end.stdout
    assert "once more" not in end.stdout


def test_a_module_that_cannot_be_imported_fails_its_part_and_the_run(run: Run) -> None:
    tests, end = run.tests("import nowhere", "-n1"), run.end()

    assert tests.returncode != 0
    assert end.returncode == once_more.DEFECT
    assert "No module named 'nowhere'" in end.stdout


def test_many_failures_are_not_repeated(run: Run) -> None:
    run.tests(f"@pytest.mark.parametrize('n', range({once_more.MOST + 1}))\ndef test_broken(n): assert False\n")

    end = run.end()

    assert end.returncode == once_more.DEFECT
    assert "once more" not in end.stdout


def test_without_the_file_a_failed_test_fails_at_once(run: Run) -> None:
    assert run.tests(BROKEN, noted=False).returncode != 0
    assert not run.failed.exists()
