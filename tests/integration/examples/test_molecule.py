"""The molecule scenario of each example passes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.integration.examples.deployed import EXAMPLES, copy
from tests.integration.scaffold.developer import STEPS, of_a_developer
from tests.kit.go_programs import get_helm


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/PROJECT")))
def test_the_scenario_of_an_example_passes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helm = get_helm(os.environ, sys.stderr)
    monkeypatch.setenv("PATH", os.pathsep.join([str(helm.parent), os.environ["PATH"]]))
    with of_a_developer(copy(name, tmp_path)) as project:
        assert project.molecule("test") == dict.fromkeys(STEPS, True)
