from __future__ import annotations

import pytest

from runner.engine.warm import tested


@pytest.mark.parametrize("version", ["2.18.0", "2.19.4", "2.20.0rc1", "2.21.99"])
def test_tested_versions_are_not_a_problem(version: str) -> None:
    assert tested.problem_of(version) is None


@pytest.mark.parametrize("version", ["2.17.14", "2.22.0b1", "3.0.0", "devel"])
def test_an_untested_version_is_named_with_the_tested_ones(version: str) -> None:
    assert tested.problem_of(version) == f"ansible-core {version} is installed, and it was tested with 2.18 to 2.21"
