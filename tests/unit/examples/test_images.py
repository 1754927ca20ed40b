"""What of an example's image can be seen without building one: everything that it is made of is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.places import ROOT

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/Dockerfile"))
COMES_ALONG = {"ansible.builtin", "operator_sdk.util"}
"""With Ansible, and with the operator."""

pytestmark = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


def _instructions(dockerfile: Path) -> list[str]:
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    return [each for each in "\n".join(lines).replace("\\\n", " ").splitlines() if each]


def _modules(tasks: Any) -> Iterator[str]:
    """The modules that a list of tasks names whole."""
    for task in tasks if isinstance(tasks, list) else ():
        for key, value in task.items() if isinstance(task, dict) else ():
            if key in {"block", "rescue", "always", "tasks", "pre_tasks", "handlers"}:
                yield from _modules(value)
            elif key.count(".") >= 2:
                yield key


def test_files_to_copy_exist_and_are_not_ignored_by_the_builder(example: Path) -> None:
    let_through = (example / ".dockerignore").read_text().splitlines()
    copied = [each.split()[1:-1] for each in _instructions(example / "Dockerfile") if each.startswith("COPY ")]
    sources = [source for each in copied if not each[0].startswith("--from=") for source in each]
    assert len(sources) >= 4
    for source in sources:
        assert (example / source).exists(), source
        assert f"!{source.rstrip('/')}" in let_through


def test_the_user_is_the_base_image_s_again_when_root_is_done(example: Path) -> None:
    users = [each.split()[1] for each in _instructions(example / "Dockerfile") if each.startswith("USER ")]
    assert users in ([], ["root", "${USER_UID}"])
    assert re.search(r"^ENV .*\bUSER_UID=", "\n".join(_instructions(ROOT / "Dockerfile")), re.MULTILINE)


@pytest.mark.lengthy
def test_each_collection_whose_modules_run_is_installed(example: Path) -> None:
    installed = {each["name"] for each in yaml.safe_load((example / "requirements.yml").read_text())["collections"]}
    files = [path for folder in ("roles", "playbooks") for path in (example / folder).rglob("*.yml")]
    used = {
        ".".join(module.split(".")[:2])
        for path in files
        if "files" not in path.relative_to(example).parts and "templates" not in path.relative_to(example).parts
        for module in _modules(yaml.safe_load(path.read_text()))
    }
    assert used & {"kubernetes.core", "ansible.builtin"}
    assert used - COMES_ALONG <= installed
