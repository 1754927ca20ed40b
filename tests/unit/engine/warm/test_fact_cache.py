"""Cached facts: a file is written when it changes, and otherwise only gets the time of now."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.engine.warm import fact_cache, versions
from tests.forks import in_a_fork

pytestmark = pytest.mark.skipif(not versions.TAGGED, reason="before ansible-core 2.19 only facts are saved")

ONE, TWO = {"__payload__": '{"a": 1}'}, {"__payload__": '{"a": 2}'}


def steps(folder: Path, act: Callable[[Any, Path], object]) -> str:
    """Return what this says of a cache and its file, with the hook in place."""

    def inside() -> object:
        os.environ["ANSIBLE_CACHE_PLUGIN_CONNECTION"] = str(folder)
        from ansible.plugins.cache.jsonfile import CacheModule  # noqa: PLC0415 - in a fork

        fact_cache.install()
        cache = CacheModule.__new__(CacheModule)
        cache.__dict__.update(_cache_dir=str(folder), _timeout=0.0, plugin_name="jsonfile", _cache={})
        cache.__dict__.update(_sanitized={}, _files={"host": str(folder / "host")})
        return act(cache, folder / "host")

    return in_a_fork(inside)


def test_what_is_there_already_is_not_written_again_but_gets_a_new_time(tmp_path: Path) -> None:
    def act(cache: Any, file: Path) -> object:
        cache.set("host", ONE)
        os.utime(file, (1, 1))
        cache.set("host", dict(ONE))  # who else touched it, one cannot know: it is written
        inode = file.stat().st_ino
        cache.set("host", dict(ONE))
        after = file.stat()
        return (
            after.st_ino == inode,
            after.st_mtime > 1,
            cache.get("host") == ONE,
            [each.name for each in tmp_path.iterdir()],
        )

    assert steps(tmp_path, act) == "(True, True, True, ['host'])"


def test_what_is_new_is_written(tmp_path: Path) -> None:
    def act(cache: Any, file: Path) -> object:
        cache.set("host", ONE)
        cache.set("host", TWO)
        first = file.read_text(encoding="utf-8")
        cache.set("host", ONE)
        return "2" in first, "1" in file.read_text(encoding="utf-8")

    assert steps(tmp_path, act) == "(True, True)"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_somebody_touched_is_written(tmp_path: Path, how: str) -> None:
    def act(cache: Any, file: Path) -> object:
        cache.set("host", ONE)
        file.unlink()
        if how == "replaced":
            file.write_text("{}", encoding="utf-8")
        cache.set("host", dict(ONE))
        return "1" in file.read_text(encoding="utf-8")

    assert steps(tmp_path, act) == "True"
