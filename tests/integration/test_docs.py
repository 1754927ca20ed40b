"""The site of the docs builds without warnings and broken links, loads only its own files, and fits narrow windows."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.places import ROOT
from tests.kit.processes import captured
from tests.kit.registry import serving

if TYPE_CHECKING:
    from tests.kit.browser import Reader

pytestmark = pytest.mark.xdist_group("browser")


def build(project: Path, site: Path) -> tuple[int, str]:
    done = captured(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site, cwd=project)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    code, told = build(ROOT, folder)
    assert code == 0, told
    return folder


@pytest.fixture
def url(site: Path) -> Iterator[str]:
    """The address of the site."""
    with serving(site) as address:
        yield f"{address}/"


def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(site: Path) -> None:
    assert "runTimeout" in (site / "watches/index.html").read_text()
    pages = list(site.rglob("index.html"))
    assert len(pages) > 50
    loaded = re.compile(r"""<(?:script|link(?! rel="canonical")|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")
    assert [str(page) for page in pages if loaded.search(page.read_text())] == []


@pytest.mark.nightly
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


_TABLES = """
return [...document.querySelectorAll(".md-typeset table:not([class])")].map((table) => {
  const around = table.closest(".md-typeset__scrollwrap");
  const columns = [...table.rows[0].cells].map((cell) => cell.offsetWidth);
  return {columns, hidden: table.scrollWidth - around.clientWidth, scrolls: getComputedStyle(around).overflowX};
});
"""


_BROKEN_WORDS = """
const broken = [];
for (const code of document.querySelectorAll(".md-typeset table td code")) {
  for (const node of code.childNodes) {
    if (node.nodeType !== Node.TEXT_NODE) continue;
    for (const word of node.data.matchAll(/\\w+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(word[0]);
    }
  }
}
return broken;
"""


@pytest.mark.parametrize("page", ["flags/", "watches/", "migration-do/"])
def test_code_in_a_table_breaks_only_between_words(url: str, reader: Reader, page: str) -> None:
    reader.open(url + page)
    assert reader.script("return document.querySelectorAll('td code').length") > 10
    assert reader.script(_BROKEN_WORDS) == []


@pytest.mark.parametrize("page", ["flags/", "watches/", "status/"])
def test_tables_fit_in_a_window_of_1280_pixels(url: str, reader: Reader, page: str) -> None:
    reader.resize(1280)
    reader.open(url + page)
    assert [table for table in reader.script(_TABLES) if table["hidden"] > 0] == []
    assert reader.script(_BROKEN_WORDS.replace("table td", "table th")) == []


@pytest.mark.parametrize("page", ["flags/", "watches/", "migration-do/"])
def test_a_page_fits_in_a_narrow_window(url: str, reader: Reader, page: str) -> None:
    reader.resize(390)
    reader.open(url + page)
    assert reader.script("return document.documentElement.scrollWidth - innerWidth") <= 0
    tables = reader.script(_TABLES)
    assert tables
    for table in tables:
        assert min(table["columns"]) >= 80, "no column is squeezed"
        if table["hidden"] > 0:
            assert len(table["columns"]) > 3, "tables of two and three columns fit"
            assert table["scrolls"] == "auto"
