"""The operator works without its features and optional engines, all or one of them, except masking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.deletion import FOLDERS, without
from tests.kit.tasks import config_map
from tests.kit.wait import patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.objects import Things
    from tests.kit.operator import Project

MASKING = "features/masking"
OPTIONAL = [folder for folder in FOLDERS if folder != MASKING]
PROGRAM = (sys.executable, "-m", "runner")


@pytest.mark.parametrize(
    "folders",
    [
        pytest.param(OPTIONAL, id="all"),
        *(pytest.param([folder], marks=pytest.mark.nightly, id=folder) for folder in OPTIONAL),
    ],
)
def test_an_object_is_reconciled_and_finalized_without_them(
    folders: list[str], project: Project, things: Things, tmp_path: Path
) -> None:
    project.watch("thing", finalizer={"name": "test.example.com/end", "role": "cleanup"})
    project.role("thing", config_map())
    project.role("cleanup", "- ansible.builtin.debug: {msg: the end}\n")
    copy = without(tmp_path / "copy", *folders)
    operator = project.start(environment={"PYTHONPATH": str(copy)}, program=PROGRAM)
    things.create("one")
    assert things.await_success("one")["reason"] == "Successful"
    things.delete("one")
    things.await_gone("one")
    assert operator.lines(level="error") == []
    assert operator.stop() == 0


def test_an_operator_that_cannot_mask_secrets_does_not_start(project: Project, tmp_path: Path) -> None:
    project.watch("thing")
    project.role("thing", config_map())
    copy = without(tmp_path / "copy", MASKING)
    operator = project.start(environment={"PYTHONPATH": str(copy)}, program=PROGRAM, ready=False)
    assert operator.process.wait(patience()) == 2
    assert "this operator cannot mask the secret values of runs; install all of it" in operator.log
