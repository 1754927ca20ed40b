"""Run folders of kinds that a former version of the watches file named."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.app import process
from runner.objects import GVK
from tests.kit.watch_values import watch_value

OLD = watch_value(gvk=GVK("test.example.com", "v1alpha1", "Thing"))
NEW = watch_value(gvk=GVK("test.example.com", "v1", "Thing"))
CORE = watch_value(gvk=GVK("", "v1", "Secret"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project" / "runner"


def run_folder(root: Path, kind: str) -> Path:
    folder = root / kind / "ns" / "one"
    (folder / "env").mkdir(parents=True)
    (folder / "env/envvars").write_text("{}")
    return folder


def test_the_folder_of_a_removed_kind_is_returned_until_it_is_empty(root: Path) -> None:
    file = root.parent / "watches.yaml"
    assert process.former_kinds(root, file, [OLD, CORE]) == []
    left = run_folder(root, "test.example.com/v1alpha1/Thing")
    run_folder(root, "v1/Secret")
    gone = [root / "test.example.com/v1alpha1/Thing"]
    assert process.former_kinds(root, file, [NEW, CORE]) == gone
    assert process.former_kinds(root, file, [NEW, CORE]) == gone
    (left / "env/envvars").unlink()
    assert process.former_kinds(root, file, [NEW, CORE]) == []


def test_folders_recorded_for_another_watches_file_are_not_removed(root: Path) -> None:
    ours, theirs = root.parent / "ours/watches.yaml", root.parent / "theirs/watches.yaml"
    run_folder(root, "test.example.com/v1alpha1/Thing")
    assert process.former_kinds(root, theirs, [OLD]) == []
    assert process.former_kinds(root, ours, [NEW]) == []
    process.former_kinds(root, ours, [OLD])
    assert process.former_kinds(root, ours, [NEW]) == []


def test_a_folder_without_a_record_is_not_removed(root: Path) -> None:
    run_folder(root, "other.example.com/v1/Thing")
    process.former_kinds(root, root.parent / "watches.yaml", [OLD])
    assert process.former_kinds(root, root.parent / "watches.yaml", [NEW]) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"kinds": ["../../etc", "/etc", ""]}', '{"kinds": 3}', '{"kinds": [3]}']
)
def test_an_invalid_record_removes_nothing(root: Path, text: str) -> None:
    file = root.parent / "watches.yaml"
    process.former_kinds(root, file, [OLD])
    run_folder(root.parent.parent / "etc", "x")
    next(root.glob("watched-kinds/*.json")).write_text(text)
    assert process.former_kinds(root, file, [NEW]) == []


def test_without_a_writable_record_nothing_is_removed(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "watched-kinds").write_text("in the way")
    assert process.former_kinds(root, root.parent / "watches.yaml", [OLD]) == []
