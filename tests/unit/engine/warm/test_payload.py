"""What of a payload is noticed to have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.engine.warm import payload
from runner.engine.warm.payload import Entry, Payload


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text("pass\n", encoding="utf-8")
    return path


def resolved(path: Path, around: tuple[payload.Stamp, ...] = ()) -> Payload:
    status = path.stat()
    entry = Entry(str(path), b"", is_package=False, source=None, is_builtin=False)
    stamps = ((str(path), status.st_mtime_ns, status.st_size),)
    return Payload("own.module", str(path), {"own.module": entry}, stamps, around, starts_anew=False)


def test_a_payload_stands_for_as_long_as_nothing_changes(module: Path) -> None:
    assert resolved(module).stands(())


def test_a_payload_falls_when_a_file_of_it_is_written(module: Path) -> None:
    known = resolved(module)

    module.write_text("pass  # more\n", encoding="utf-8")

    assert not known.stands(())


def test_a_payload_falls_when_a_file_of_it_is_gone(module: Path) -> None:
    known = resolved(module)

    module.unlink()

    assert not known.stands(())


def test_a_payload_falls_when_something_could_override_a_part_of_it(module: Path, tmp_path: Path) -> None:
    folder = tmp_path / "module_utils"
    folder.mkdir()
    known = resolved(module, payload.overrides([str(folder)], "/builtin"))
    assert known.stands(payload.overrides([str(folder)], "/builtin"))

    (folder / "basic.py").write_text("pass\n", encoding="utf-8")

    assert not known.stands(payload.overrides([str(folder)], "/builtin"))


def test_ansibles_own_folder_overrides_nothing_by_whatever_name(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "basic.py").write_text("pass\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(own)

    assert payload.overrides([str(own), str(tmp_path / "link")], os.path.realpath(own)) == ()


def test_strings_of_ansibles_own_kinds_become_plain_ones_byte_by_byte() -> None:
    class Own(str):
        __slots__ = ()

    found = payload.plain(Own("ä\udcff"))

    assert (type(found), found) == (str, "ä\udcff")
