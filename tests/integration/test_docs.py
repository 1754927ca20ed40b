"""The site of the docs builds without warnings, without broken links, and without requests to other hosts."""

from __future__ import annotations

import re
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


def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    code, told = build(ROOT, tmp_path)
    assert code == 0, told
    assert "runTimeout" in (tmp_path / "watches/index.html").read_text()
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) > 40
    loaded = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")
    assert [str(page) for page in pages if loaded.search(page.read_text())] == []


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "docs", project / "docs")
    shutil.copy(ROOT / "mkdocs.yml", project)
    shutil.copytree(ROOT / "hack", project / "hack")
    with (project / "docs/index.md").open("a") as page:
        page.write("\n[nothing](runs.md#no-such-heading)\n")
    code, told = build(project, tmp_path / "site")
    assert code == 1
    assert "no-such-heading" in told
