"""Folders of plugins that are listed once: found is what `glob` finds, also after something was added."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from runner.engine.warm.patches.listings import _Glob


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("k8s.py", "k8s.yml", "k8s_info.py", "k8s", ".k8s.py", "other.py", "k8s.d"):
        (tmp_path / name).touch()
    _make_old(tmp_path)
    return tmp_path


def _make_old(folder: Path) -> None:
    os.utime(folder, (1_000_000_000, 1_000_000_000))


@pytest.mark.parametrize("name", ["k8s", "k8s_info", "other", "missing", ".k8s", "k8s.d", "k*", "[k]8s", "k8s.", ""])
def test_what_is_found_is_what_glob_finds(folder: Path, name: str) -> None:
    ours, pattern = _Glob(), f"{folder / name}.*" if name else f"{folder}/.*"
    for _ in range(2):
        assert sorted(ours.iglob(pattern)) == sorted(glob.glob(pattern))  # noqa: PTH207 - what Ansible calls


def test_nothing_is_found_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert list(_Glob().iglob(f"{tmp_path}/none/k8s.*")) == []


def test_a_folder_is_listed_once_until_something_is_added(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    real = os.listdir

    def counting(path: str) -> list[str]:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", counting)
    ours = _Glob()
    for _ in range(3):
        assert len(list(ours.iglob(f"{folder}/k8s.*"))) == 3
    assert len(listed) == 1
    (folder / "k8s.json").touch()
    assert len(list(ours.iglob(f"{folder}/k8s.*"))) == 4


def test_a_folder_that_was_changed_just_now_is_listed_again(folder: Path) -> None:
    ours = _Glob()
    (folder / "k8s.json").touch()
    now = folder.stat().st_mtime_ns
    assert len(list(ours.iglob(f"{folder}/k8s.*"))) == 4
    (folder / "k8s.toml").touch()
    os.utime(folder, ns=(now, now))  # as a file system with coarse times would have it
    assert len(list(ours.iglob(f"{folder}/k8s.*"))) == 5


def test_what_else_a_loader_uses_is_globs_own() -> None:
    assert _Glob().glob is glob.glob
