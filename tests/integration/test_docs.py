"""The book is built by mkdocs, which knows of a page that is missing and of a link that leads nowhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(project: Path, site: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=project,
        text=True,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_book_is_built_without_a_warning(tmp_path: Path) -> None:
    code, told = build(ROOT, tmp_path)
    assert code == 0, told
    assert "runTimeout" in (tmp_path / "watches/index.html").read_text()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "docs", project / "docs")
    shutil.copy(ROOT / "mkdocs.yml", project)
    shutil.copytree(ROOT / "hack", project / "hack")
    with (project / "docs/index.md").open("a") as page:
        page.write("\n[nothing](runs.md#no-such-heading)\n")
    code, told = build(project, tmp_path / "site")
    assert code == 1
    assert "no-such-heading" in told
