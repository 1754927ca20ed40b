"""Failed tests of `.ci/run`: each is repeated once, alone, after all others.

`Failures` is a plugin of pytest, which `tests/conftest.py` registers if `FILE` is set. It notes each failed test in
that file, and the tests then exit with 0. `python -m tests.kit.once_more` decides at the end of `.ci/run`. What no
repetition can explain, such as a crashed worker or a module that cannot be imported, keeps its exit code.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.kit.processes import merged

FILE = "CI_FAILED_TESTS"
MOST = 10
"""More failures than these are a defect, which a repetition would only hide."""
FAILED, DEFECT = 1, 2
_LONGEST_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed, with all that is needed to repeat it, or a defect that has no test."""

    test: str
    cause: str
    python: str
    folder: str
    environ: dict[str, str]
    is_defect: bool = False

    @classmethod
    def here(cls, test: str, cause: str, *, is_defect: bool = False) -> Failure:
        """Return a failure of this process."""
        return cls(test, cause, sys.executable, str(Path.cwd()), dict(os.environ), is_defect)

    @property
    def key(self) -> tuple[str, str, str]:
        """What two failures of one test have in common."""
        return self.test, self.python, self.environ.get("ANSIBLE_OPERATOR_ENGINE", "")

    def __str__(self) -> str:
        """Return the name of the test, where it ran, and the cause."""
        _, _, engine = self.key
        where = [os.path.relpath(Path(self.python).parents[1], self.folder), *([f"engine {engine}"] if engine else [])]
        return f"{self.test} ({', '.join(where)})\n    {self.cause}"


class Failures:
    """A plugin that notes each failed test, and leaves the decision to the end of `.ci/run`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._noted = 0
        self._has_defect = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed in its setup, its call or its teardown."""
        if report.failed:
            self._note(Failure.here(_without_group(report.nodeid), _cause(report)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note tests that cannot be collected."""
        if report.failed:
            self._note(Failure.here(report.nodeid, _cause(report), is_defect=True))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Note a test that ended its worker."""
        self._note(Failure.here(_without_group(crashitem), "its worker crashed", is_defect=True))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> object:
        """Exit with 0 if only tests failed that can be repeated."""
        result = yield
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self._noted and not self._has_defect:
            session.exitstatus = pytest.ExitCode.OK
            print(f"\nFailures: {self._noted}. .ci/run repeats these tests after all others.", file=sys.stderr)  # noqa: T201
        return result

    def _note(self, failure: Failure) -> None:
        self._noted += 1
        self._has_defect = self._has_defect or failure.is_defect
        with self._file.open("a", encoding="utf-8") as file:  # one write: other sessions append too
            file.write(json.dumps(asdict(failure)) + "\n")


def register(config: pytest.Config) -> None:
    """Add the plugin if `.ci/run` repeats what fails. Programs that a test starts do not inherit the file."""
    file = os.environ.pop(FILE, None)
    if file and not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Failures(Path(file)))


def _without_group(nodeid: str) -> str:
    """Return the name of a test without the `@group` that pytest-xdist appends."""
    return nodeid[: nodeid.rfind("@")] if nodeid.rfind("@") > nodeid.rfind("]") else nodeid


def _cause(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the error with its place."""
    if crash := getattr(report.longrepr, "reprcrash", None):
        place = crash.path.removeprefix(f"{Path.cwd()}/")
        return f"{place}:{crash.lineno}: {crash.message.strip()}".splitlines()[0][:_LONGEST_CAUSE]
    lines = report.longreprtext.strip().splitlines() or ["no cause"]
    return lines[-1].strip()[:_LONGEST_CAUSE]


def failures_in(file: Path) -> list[Failure]:
    """Return the first failure of each test that the file contains."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    first: dict[tuple[str, str, str], Failure] = {}
    for failure in (Failure(**json.loads(line)) for line in lines):
        first.setdefault(failure.key, failure)
        if failure.is_defect:
            first[failure.key] = failure
    return list(first.values())


def _passes(failure: Failure) -> bool:
    """Repeat a test alone. A test that is skipped has not passed."""
    command = [failure.python, "-m", "pytest", "-p", "no:cacheprovider", failure.test]
    done = merged(*command, cwd=failure.folder, env=failure.environ, errors="replace")
    print(done.stdout, flush=True)  # noqa: T201 - a program
    return done.returncode == 0 and re.search(r"\b1 passed\b", done.stdout) is not None


def _print_list(title: str, failures: list[Failure]) -> None:
    if failures:
        print(f"{title}\n" + "\n".join(map(str, failures)), flush=True)  # noqa: T201 - a program


def decide(failures: list[Failure], flaky: Path) -> int:
    """Repeat each test, list those that passed now in `flaky`, and return the exit code."""
    defects = [failure for failure in failures if failure.is_defect]
    if defects or len(failures) > MOST:
        _print_list("FAILED, and not repeated", defects or failures)
        return DEFECT
    twice = []
    for failure in failures:
        print(f"== once more, alone: {failure}", flush=True)  # noqa: T201 - a program
        if _passes(failure):
            with flaky.open("a", encoding="utf-8") as file:
                file.write(f"{failure}\n")
        else:
            twice.append(failure)
    _print_list("FAILED twice", twice)
    return FAILED if twice else 0


if __name__ == "__main__":
    sys.exit(decide(failures_in(Path(sys.argv[1])), Path(sys.argv[2])))
