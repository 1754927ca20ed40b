"""The tutorials, done as they are written: from an empty folder to a released operator, and a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.guide import results
from bench.results import show
from tests.kit.newcomer import DATABASE, arriving


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("molecule")
def test_the_guide_leads_from_an_empty_folder_to_a_chart_and_a_bundle(
    tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with arriving(home, wheel) as newcomer:
        newcomer.follow()
    assert not list(home.glob(".local/state/ansible-operator/clusters/*/run")), "a control plane was left"
    assert newcomer.figures is not None
    with capsys.disabled():
        for each in results(newcomer.figures):
            show(each)
    assert newcomer.figures.commands <= 5


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("molecule")
def test_the_database_of_the_tutorial_keeps_its_volume_and_its_password(tmp_path: Path, wheel: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with arriving(home, wheel) as newcomer:
        newcomer.install()
        newcomer.follow(DATABASE)
    assert not list(home.glob(".local/state/ansible-operator/clusters/*/run")), "a control plane was left"
