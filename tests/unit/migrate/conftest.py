"""Projects of the Go operator, one construct at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runner.compatibility.finding import Report
from runner.sdk.migrate import analysis
from runner.sdk.migrate.project import Project
from tests.unit.migrate.projects import DOCKERFILE, REQUIREMENTS, WATCHES, Analyse, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the project."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def project(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that needs no change but its base image; it is the working directory."""
    write("watches.yaml", WATCHES)
    write("requirements.yml", REQUIREMENTS)
    write("Dockerfile", DOCKERFILE)
    write("roles/shop/tasks/main.yml", "- ansible.builtin.debug:\n    msg: hello\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def analyse(project: Path) -> Analyse:
    """Analyse the project, after writing files into it."""

    def run(files: Mapping[str, str] | None = None) -> Report:
        for name, text in (files or {}).items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return analysis.analyse(Project({"HOME": str(project / "home")}))

    return run


@pytest.fixture
def rules(analyse: Analyse) -> Callable[..., list[tuple[str, str]]]:
    """Return rule and place of each finding, without that of the base image."""

    def run(files: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        return [(each.rule, each.place) for each in analyse(files).findings if each.rule != "base-image"]

    return run
