"""Cached facts: a file is written when it changes, and otherwise only gets the time of now."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.engine.warm import versions
from runner.engine.warm.patches import fact_cache
from tests.forks import in_a_fork, load_plugins

pytestmark = pytest.mark.skipif(not versions.TAGGED, reason="before ansible-core 2.19 only facts are saved")

ONE, TWO = {"a": 1}, {"a": 2}


def steps(folder: Path, act: Callable[[Any, Path], object]) -> str:
    """Return what this says of a cache and its file, with the hook in place."""

    def inside() -> object:
        from ansible.plugins.loader import cache_loader  # noqa: PLC0415 - in a fork

        load_plugins()
        fact_cache.install()
        cache = cache_loader.get("jsonfile", _uri=str(folder), _timeout=0, _prefix="")
        cache.set("host", ONE)
        (file,) = folder.iterdir()  # Ansible puts something before a host's name
        return act(cache, file)

    return in_a_fork(inside)


def payload(text: str) -> str:
    """Return the facts in a cache's file."""
    return str(json.loads(text).get("__payload__"))


def test_what_is_there_already_is_not_written_again_but_gets_a_new_time(tmp_path: Path) -> None:
    def act(cache: Any, file: Path) -> object:
        before = file.stat().st_ino
        renewed: list[object] = []
        os.utime = renewed.append  # type: ignore[assignment]  # in a process of its own
        cache.set("host", dict(ONE))
        same = file.stat().st_ino == before
        return same, renewed == [str(file)], cache.get("host") == ONE, len(list(tmp_path.iterdir()))

    assert steps(tmp_path, act) == "(True, True, True, 1)"


def test_what_is_new_is_written(tmp_path: Path) -> None:
    def act(cache: Any, file: Path) -> object:
        cache.set("host", TWO)
        first = file.read_text(encoding="utf-8")
        cache.set("host", ONE)
        return "2" in payload(first), "1" in payload(file.read_text(encoding="utf-8"))

    assert steps(tmp_path, act) == "(True, True)"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_somebody_touched_is_written(tmp_path: Path, how: str) -> None:
    def act(cache: Any, file: Path) -> object:
        file.unlink()
        if how == "replaced":
            file.write_text("{}", encoding="utf-8")
        cache.set("host", dict(ONE))
        return "1" in payload(file.read_text(encoding="utf-8"))

    assert steps(tmp_path, act) == "True"
