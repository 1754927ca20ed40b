"""The operator works without any one of its features and engines, except masking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.kit.deletion import FOLDERS, without
from tests.kit.wait import patience

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.objects import Things
    from tests.kit.operator import Project

MASKING = "features/masking"
OFTEN = {"features/loopguard", "features/plan"}
"""Two without which the core has another way; the rest takes long."""
PROGRAM = (sys.executable, "-m", "runner")
ROLE = """
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
"""


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=() if folder in OFTEN else pytest.mark.full)
        for folder in FOLDERS
        if folder != MASKING
    ],
)
def test_an_object_is_reconciled_and_finalized_without_it(
    folder: str, project: Project, things: Things, tmp_path: Path
) -> None:
    project.watch("thing", finalizer={"name": "test.example.com/end", "role": "cleanup"})
    project.role("thing", ROLE)
    project.role("cleanup", "- ansible.builtin.debug: {msg: the end}\n")
    copy = without(folder, tmp_path / "copy")
    operator = project.start(environment={"PYTHONPATH": str(copy)}, program=PROGRAM)
    things.create("one")
    assert things.await_success("one")["reason"] == "Successful"
    things.delete("one")
    things.await_gone("one")
    assert operator.lines(level="error") == []
    assert operator.stop() == 0


def test_an_operator_that_cannot_mask_secrets_does_not_start(project: Project, tmp_path: Path) -> None:
    project.watch("thing")
    project.role("thing", ROLE)
    copy = without(MASKING, tmp_path / "copy")
    operator = project.start(environment={"PYTHONPATH": str(copy)}, program=PROGRAM, ready=False)
    assert operator.process.wait(patience()) == 2
    assert "this operator cannot mask the secret values of runs; install all of it" in operator.log
