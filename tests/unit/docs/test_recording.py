"""Terminal recordings as SVG."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from hack.recording import FILE, Line, Pane, svg
from tests.kit.places import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[ET.Element]:
    return ET.fromstring(picture).findall(f"{SVG}text")  # noqa: S314 - our own


@pytest.fixture
def pane() -> Pane:
    return Pane("first terminal", lines=[Line(0, "$ run <it>"), Line(1.26, "done & " + "x" * 200)])


def test_a_recording_shows_the_lines_of_each_terminal_at_their_time(pane: Pane) -> None:
    title, typed, shown, other = texts(svg("a & b", [pane, Pane("second terminal")]))
    assert (title.text, other.text) == ("first terminal", "second terminal")
    assert (typed.get("class"), typed.text) == ("line typed", "$ run <it>")
    assert shown.get("style") == "animation-duration:0.3s"
    assert float(title.attrib["y"]) < float(typed.attrib["y"]) < float(shown.attrib["y"]) < float(other.attrib["y"])


def test_a_line_that_does_not_fit_is_cut(pane: Pane) -> None:
    shown = texts(svg("a", [pane]))[2].text or ""
    assert len(shown) == 120
    assert shown.endswith("x…")


def test_the_readme_shows_the_recording_in_the_repository() -> None:
    assert f"({FILE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    assert any((each.text or "").startswith("$ ansible-operator dev") for each in texts(FILE.read_text()))
