from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.base.config import atomic_file


@pytest.mark.parametrize(("umask", "mode", "made"), [(0, None, 0o600), (0o077, 0o644, 0o644)])
def test_a_new_file_is_private_or_has_the_given_mode_whatever_the_umask(
    tmp_path: Path, umask: int, mode: int | None, made: int
) -> None:
    before = os.umask(umask)
    try:
        atomic_file.write(tmp_path / "file", "text", **({} if mode is None else {"mode": mode}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == made


def test_a_file_that_was_readable_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    atomic_file.write(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["caf\u00e9\udcff", b"caf\xc3\xa9\xff", [b"caf\xc3", b"\xa9\xff"]])
def test_text_bytes_and_pieces_are_written_alike(tmp_path: Path, content: str | bytes | list[bytes]) -> None:
    atomic_file.write(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == b"caf\xc3\xa9\xff"


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise ValueError("no more")

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ValueError, match="no more"):
        atomic_file.write(path, pieces())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_target_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(OSError, match="target"):
        atomic_file.write(target, "text")
    assert list(tmp_path.iterdir()) == [target]


def test_a_symbolic_link_is_replaced_and_its_target_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    atomic_file.write(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "old"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()
