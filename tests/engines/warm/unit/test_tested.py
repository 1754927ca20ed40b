from __future__ import annotations

import datetime as dt
import tomllib

import pytest
from packaging.requirements import Requirement

from runner.engines.warm import tested
from runner.engines.warm.engine import WarmChoice
from runner.values.errors import ConfigError
from tests.kit.places import ROOT


@pytest.mark.parametrize("version", ["2.18.0", "2.20.0rc1", "2.21.99", "2.22.0rc1"])
def test_tested_versions_are_not_a_problem(version: str) -> None:
    assert tested.problem_of(version) is None


@pytest.mark.parametrize("version", ["2.17.14", "2.19.14", "2.23.0b1", "3.0.0", "devel"])
def test_an_untested_version_is_named_with_the_tested_ones(version: str) -> None:
    found = tested.problem_of(version)

    assert found == f"ansible-core {version} is installed; install one of 2.18, 2.20, 2.21 and 2.22, which are tested"


def test_a_slow_engine_is_logged_once_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tested, "problem", lambda: "ansible-core 2.23.0 is installed")
    choice = WarmChoice("auto")
    assert not choice.is_warm("exec")
    assert capsys.readouterr().out == ""
    assert [choice.is_warm(None), choice.is_warm("auto")] == [False, False]
    log = capsys.readouterr().out
    assert log.count("Slow engine") == 1
    assert "ansible-core 2.23.0 is installed" in log
    with pytest.raises(ConfigError, match="engine of Thing: the warm engine cannot be used: ansible-core"):
        choice.check("warm", "engine of Thing")


def test_the_package_requires_a_version_that_the_warm_engine_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (required,) = (each for each in map(Requirement, project["dependencies"]) if each.name == "ansible-core")
    permitted = {minor for minor in range(30) if required.specifier.contains(f"2.{minor}.5")}
    assert {(2, minor) for minor in permitted} == set(tested.CORES)


@pytest.mark.nightly
def test_no_tested_version_is_older_than_its_date() -> None:
    today = dt.datetime.now(dt.UTC).date()

    assert [core for core, until in tested.WARM_UNTIL.items() if until < today] == []
