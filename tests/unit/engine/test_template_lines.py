"""Lines of templates in failures: what Ansible says is in `tests/integration/engine/test_failures.py`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.core.engine import template_lines
from runner.core.engine.job import TaskFailure
from tests.kit.status_world import FAILURE


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/environ", "{folder}/pipe", "{folder}/tasks/none.yml:3"])
@pytest.mark.parametrize("message", ["'replicaz' is undefined", "unexpected '}'"])
def test_only_files_with_text_are_read_whatever_path_a_run_reports(tmp_path: Path, path: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    failure = TaskFailure("write", message, path.format(folder=tmp_path))
    assert template_lines.placed(replace(FAILURE, failures=(failure,))).failures == (failure,)


def test_a_word_in_two_templates_leaves_the_place_of_the_task(tmp_path: Path) -> None:
    for name in ("one.j2", "two.j2"):
        (tmp_path / "templates").mkdir(exist_ok=True)
        (tmp_path / "templates" / name).write_text("{{ replicaz }}")
    failure = TaskFailure("write", "'replicaz' is undefined", f"{tmp_path}/tasks/main.yml:3")
    assert template_lines.placed(replace(FAILURE, failures=(failure,))).failures == (failure,)
    (tmp_path / "templates" / "two.j2").unlink()
    assert (
        template_lines.placed(replace(FAILURE, failures=(failure,))).failures[0].path
        == f"{tmp_path}/templates/one.j2:1"
    )
