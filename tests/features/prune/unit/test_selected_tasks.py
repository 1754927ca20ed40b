"""Settings because of which no run counts for `prune`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.features.prune.selected_tasks import tasks_are_selected


@pytest.mark.parametrize(
    "arguments",
    [
        "--tags a",
        "--tags=a",
        "-t a",
        "-ta",
        "-vt a",
        "--skip-tags a",
        "--skip a",
        "--start-at-task 'a b'",
        "-l host",
        "--limit=host",
        "-C",
        "--check",
        "--tags 'unbalanced",
    ],
)
def test_arguments_that_select_tasks_or_hosts_are_found(arguments: str, tmp_path: Path) -> None:
    assert "--ansible-args contains -" in tasks_are_selected(arguments, {}, tmp_path)


@pytest.mark.parametrize(
    "arguments", ["", "-v", "-vvv", "--diff", "--forks 3", "-e a=b", "--extra-vars '{\"tags\": 1}'"]
)
def test_other_arguments_select_nothing(arguments: str, tmp_path: Path) -> None:
    assert tasks_are_selected(arguments, {"ANSIBLE_CONFIG": str(tmp_path / "none.cfg")}, tmp_path) == ""


@pytest.mark.parametrize("name", ["ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS"])
def test_variables_that_select_tags_are_found(name: str, tmp_path: Path) -> None:
    assert tasks_are_selected("", {name: "a"}, tmp_path) == f"environment variable {name}"


@pytest.mark.parametrize(
    ("text", "found"), [("[tags]\nskip = a\n", True), ("[tags]\n", False), ("[", False), ("", False)]
)
def test_a_configuration_that_selects_tags_is_found(text: str, found: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    config = tmp_path / "ansible.cfg"
    config.write_text(text)
    assert bool(tasks_are_selected("", {"ANSIBLE_CONFIG": str(config)}, tmp_path)) is found
