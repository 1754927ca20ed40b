"""Kinds of dependents that are kept in a file. What a ConfigMap does is tested on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.dependents.store import FileStore, JointStore
from runner.dependents.written import WriteRecord
from runner.objects import GVK

WATCH = GVK("cache.example.com", "v1alpha1", "Memcached")
CORE = GVK("", "v1", "Namespace")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")


async def test_saved_kinds_are_loaded_again(tmp_path: Path) -> None:
    kinds = {WATCH: frozenset({DEPLOYMENT, CONFIG_MAP}), CORE: frozenset[GVK]()}
    assert await FileStore(tmp_path / "below").load() == {}
    await FileStore(tmp_path / "below").save(kinds)
    assert await FileStore(tmp_path / "below").load() == kinds


async def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    await FileStore(tmp_path / "below").save({WATCH: frozenset({DEPLOYMENT})})
    (file,) = (tmp_path / "below").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


async def test_operators_that_share_a_folder_take_nothing_from_each_other(tmp_path: Path) -> None:
    await FileStore(tmp_path).save({WATCH: frozenset({DEPLOYMENT})})
    await FileStore(tmp_path).save({CORE: frozenset({CONFIG_MAP})})
    assert await FileStore(tmp_path).load() == {WATCH: {DEPLOYMENT}, CORE: {CONFIG_MAP}}


async def test_replicas_that_share_the_work_keep_what_each_of_them_has_found(tmp_path: Path) -> None:
    await JointStore(FileStore(tmp_path)).save({WATCH: frozenset({DEPLOYMENT})})
    await JointStore(FileStore(tmp_path)).save({WATCH: frozenset({CONFIG_MAP})})
    assert await JointStore(FileStore(tmp_path)).load() == {WATCH: {DEPLOYMENT, CONFIG_MAP}}


async def test_records_of_written_objects_are_kept_beside_the_kinds(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    records = {WATCH: WriteRecord("2026-01-02T00:00:00Z", ("a", "b")), CORE: WriteRecord("2026-01-02T00:00:00Z", ())}
    await store.save({WATCH: frozenset({DEPLOYMENT})})
    await store.save_written(records)
    assert await store.load_written() == records
    assert await store.load() == {WATCH: {DEPLOYMENT}}
    joint = JointStore(store)
    await joint.save_written({WATCH: WriteRecord("2026-01-03T00:00:00Z", ("c", "a"))})
    assert (await joint.load_written())[WATCH] == WriteRecord("2026-01-02T00:00:00Z", ("a", "b", "c"))


@pytest.mark.parametrize("damage", [b"{", b"[]", b"7", b"\xff"])
async def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "dependent-kinds.json").write_bytes(damage)
    store = FileStore(tmp_path)
    assert await store.load() == {}
    await store.save({WATCH: frozenset({DEPLOYMENT})})
    assert await store.load() == {WATCH: {DEPLOYMENT}}


async def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    await FileStore(tmp_path / "file").save({WATCH: frozenset({DEPLOYMENT})})
    assert "Cannot save the kinds of dependents" in capsys.readouterr().out
