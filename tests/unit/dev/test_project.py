"""The operator of dev, and edits of the project that end and start it."""

from __future__ import annotations

import io
import json
import os
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from runner.base.config import sources
from runner.sdk.dev import operator
from runner.sdk.dev.board import LiveView
from runner.sdk.dev.operator import OperatorProcess, Restarts
from runner.sdk.dev.project import Project
from runner.sdk.dev.screen import Screen
from runner.values.errors import ConfigError
from tests.kit.wait import patience, wait_until

pytestmark = pytest.mark.lengthy

WATCHES = "- {version: v1, group: example.com, kind: A, role: a}\n"
_PATIENCE = 30.0


class Bench:
    """A project with one role."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed = threading.Event()
        self.write("watches.yaml", WATCHES)
        self.write("roles/a/tasks/main.yml", "[]\n")
        settings = sources.load(Namespace(watches_file=[str(folder / "watches.yaml")]), {}).settings
        self.project = Project(settings, {}, folder, self.changed.set)
        self.project.load()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        fresh = self.folder.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.folder / name)  # at once, so that no half of it is an edit of its own

    def edited(self) -> tuple[str, ...]:
        """Wait for an edit that is noticed."""
        assert self.changed.wait(_PATIENCE)
        self.changed.clear()
        return self.project.edited()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with made.project:
        yield made


@pytest.mark.parametrize("name", ["watches.yaml", "roles/a/tasks/main.yml", "roles/a/filter_plugins/new.py"])
def test_an_edit_names_the_changed_file_once(bench: Bench, name: str) -> None:
    bench.write(name, WATCHES + "# edited\n" if name == "watches.yaml" else "# edited\n")
    assert bench.edited() == (name,)
    assert bench.project.edited() == ()


def test_other_files_and_files_that_are_saved_without_a_change_are_no_edit(bench: Bench) -> None:
    bench.write("operator.log", "line\n")
    bench.write("roles/a/tasks/main.yml", "[]\n")
    assert bench.edited() == ()


def test_a_broken_file_is_named_with_its_line(bench: Bench) -> None:
    bench.write("roles/a/tasks/main.yml", "- name: x\n\tdebug:\n")
    with pytest.raises(ConfigError, match=r"roles/a/tasks/main.yml:2"):
        bench.project.load()


class Process:
    """Takes the place of the operator's process."""

    def __init__(self) -> None:
        self.calls: list[str] = ["start"]
        self.said: list[dict[str, str]] = []

    def prepare(self) -> None:
        """Needs no time."""

    def start(self, *, page: str) -> None:
        self.calls.append(f"start {page}".strip())

    @property
    def is_running(self) -> bool:
        return self.calls[-1].startswith("start")

    def terminate(self) -> None:
        self.calls.append("terminate")

    def end(self) -> None:
        self.calls.append("end")

    def take(self, line: str) -> None:
        self.said.append(json.loads(line))


def test_an_edit_ends_the_operator_at_once_and_a_valid_project_starts_it_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "_SETTLE", 0.0)
    monkeypatch.setattr(operator, "_READ_AGAIN", 0.0)
    monkeypatch.setattr(operator, "_PREPARE", -1.0)
    process = Process()
    restarts = Restarts(bench.project, process, lambda: "http://127.0.0.1:7000/")  # type: ignore[arg-type]
    bench.write("roles/a/tasks/main.yml", "- [broken\n")
    restarts.changed()
    restarts.apply()
    restarts.apply()
    assert process.calls == ["start", "terminate"]
    (problem,) = process.said
    assert problem["msg"] == "The project is invalid; no run starts until you fix it"
    assert problem["problem"].startswith("roles/a/tasks/main.yml:")
    bench.write("roles/a/tasks/main.yml", "- debug:\n")
    restarts.changed()
    restarts.apply()
    assert process.calls == ["start", "terminate", "terminate", "end", "start http://127.0.0.1:7000/"]
    assert process.said[1]["why"] == "roles/a/tasks/main.yml"
    restarts.apply()
    assert restarts.pause() is None


def test_an_edit_of_a_finalizer_runs_no_object_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_SETTLE", 0.0)
    monkeypatch.setattr(operator, "_READ_AGAIN", 0.0)
    bench.write("roles/a_finalizer/tasks/main.yml", "[]\n")
    watches = WATCHES.rstrip("}\n") + ", finalizer: {name: example.com/a, role: a_finalizer}}\n"
    bench.write("watches.yaml", watches)
    bench.project.load()
    bench.project.edited()
    process = Process()
    restarts = Restarts(bench.project, process, lambda: "")  # type: ignore[arg-type]
    for text, calls in (("- debug:\n", ["start"]), ("- [broken\n", ["start", "terminate"])):
        bench.write("roles/a_finalizer/tasks/main.yml", text)
        restarts.changed()
        restarts.apply()
        assert process.calls == calls
    assert process.said[0]["msg"] == "A finalizer was edited; the next deletions run it"
    bench.write("roles/a_finalizer/tasks/main.yml", "- debug:\n")
    bench.write("roles/a/tasks/main.yml", "- debug:\n")
    restarts.changed()
    restarts.apply()
    assert process.calls[-2:] == ["end", "start"]


FAIL = "import sys; sys.stdin.readline(); print('error: no'); sys.exit(2)"
WAIT = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def test_the_reason_of_an_end_is_there_with_the_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_PROGRAM", FAIL)
    failures: SimpleQueue[str] = SimpleQueue()

    def notify() -> None:
        failures.put(process.failure())

    process = OperatorProcess((), os.environ, io.StringIO(), Screen(LiveView(), io.StringIO()), notify)
    process.start()
    assert failures.get(timeout=patience()) == "the operator exited with code 2: error: no"
    process.close(patience())


@pytest.mark.parametrize("hurries", [True, False])
def test_a_process_that_does_not_end_in_time_is_killed(monkeypatch: pytest.MonkeyPatch, *, hurries: bool) -> None:
    monkeypatch.setattr(operator, "_PROGRAM", WAIT)
    log = io.StringIO()
    process = OperatorProcess((), os.environ, log, Screen(LiveView(), io.StringIO()), lambda: None)
    process.start()
    wait_until(lambda: "ready" in log.getvalue(), "the process")
    process.hurry()  # before it is ending
    process.terminate()
    if hurries:
        process.hurry()
    process.close(patience() if hurries else 0.1)
    assert process.failure() == ""
