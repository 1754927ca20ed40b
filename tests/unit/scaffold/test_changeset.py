from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from runner.sdk.scaffold.changeset import ChangeSet
from runner.values.errors import ConfigError, OperatorError

A, B, DEEP = PurePosixPath("a"), PurePosixPath("b"), PurePosixPath("x/y/z")


def all_of(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_files_are_created_and_changed_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    changes = ChangeSet(tmp_path)
    changes.edit(A, lambda text: text + "2")
    changes.create(DEEP, "3")
    changes.edit(DEEP, lambda text: text + "4")
    assert all_of(tmp_path) == {"a": "1"}
    assert changes.apply() == (["x/y/z"], ["a"])
    assert all_of(tmp_path) == {"a": "12", "x/y/z": "34"}


def test_an_existing_file_with_other_content_prevents_all_writes(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    changes = ChangeSet(tmp_path)
    changes.create(A, "1")
    changes.create(B, "yours")
    with pytest.raises(ConfigError, match="b: already exists with different content\nno file was written"):
        changes.apply()
    assert all_of(tmp_path) == {"b": "mine"}


def test_a_file_that_would_not_change_is_not_written(tmp_path: Path) -> None:
    for path in (A, B):
        (tmp_path / path).write_text("1")
    changes = ChangeSet(tmp_path)
    changes.create(A, "1")
    changes.edit(B, lambda text: text)
    assert changes.apply() == ([], [])


def test_a_failure_half_way_leaves_all_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "zz").write_text("a file where a folder is to be")
    changes = ChangeSet(tmp_path)
    changes.edit(A, lambda _: "2")
    changes.create(DEEP, "3")
    changes.create(PurePosixPath("zz/deeper"), "4")
    with pytest.raises(OperatorError, match=r"cannot write .*; no file was changed"):
        changes.apply()
    assert all_of(tmp_path) == {"a": "1", "zz": "a file where a folder is to be"}
    assert not (tmp_path / "x").exists()


def test_the_mode_of_a_changed_file_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "a").chmod(0o640)
    changes = ChangeSet(tmp_path)
    changes.edit(A, lambda _: "2")
    changes.apply()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("1")
    (tmp_path / "a").symlink_to("real")
    changes = ChangeSet(tmp_path)
    changes.edit(A, lambda _: "2")
    changes.apply()
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "real").read_text() == "2"


def test_a_file_that_is_not_there_cannot_be_edited(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a: no such file"):
        ChangeSet(tmp_path).edit(A, lambda text: text)


def test_a_changed_file_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n2\r\n")
    changes = ChangeSet(tmp_path)
    changes.edit(A, lambda text: text.replace("2\n", "3\n4\n"))
    changes.apply()
    assert (tmp_path / "a").read_bytes() == b"1\r\n3\r\n4\r\n"
