"""Kinds of dependents that are kept in a file, and answers of an API server that keeps them in a ConfigMap.

The ConfigMap itself is tested on a real API server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.dependents.store import ConfigMapStore, FileStore
from runner.dependents.written import WriteRecord
from runner.errors import (
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
)
from runner.objects import GVK, Object
from tests.kit.virtual_time import virtually

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


async def test_records_of_written_objects_are_kept_beside_the_kinds(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    records = {WATCH: WriteRecord("2026-01-02T00:00:00Z", ("a", "b")), CORE: WriteRecord("2026-01-02T00:00:00Z", ())}
    await store.save({WATCH: frozenset({DEPLOYMENT})})
    await store.save_written(records)
    assert await store.load_written() == records
    assert await store.load() == {WATCH: {DEPLOYMENT}}


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


class ApiServer:
    """Answers of an API server; then it accepts every request."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.saved: dict[str, str] = {}

    async def request(self, method: str, _path: str, *, body: Object | None = None, **_: object) -> Object:
        if self.errors:
            raise self.errors.pop(0)
        if method == "PATCH" and body is not None:
            self.saved |= body["data"]
        return {"data": dict(self.saved)}


@pytest.mark.parametrize(
    "error",
    [
        UnauthorizedError("the token is about to be renewed", status=401),
        ThrottledError("too many requests", status=429, retry_after=30.0),
        ConflictError("another operator creates it", status=409),
        ServerError("etcd has no leader", status=500),
        ApiUnavailableError("refused"),
    ],
)
def test_a_temporary_error_delays_a_save_and_loses_nothing(error: Exception) -> None:
    api = ApiServer(error, error)

    async def save() -> bool:
        return await ConfigMapStore(api, "ns").save({WATCH: frozenset({DEPLOYMENT})})  # type: ignore[arg-type] # a fake

    assert virtually(save())
    assert list(api.saved.values()) == ["Deployment.v1.apps"]


def test_a_refused_save_is_one_warning_and_works_as_soon_as_it_is_permitted() -> None:
    api = ApiServer(*[ForbiddenError("no", status=403)] * 2)
    store = ConfigMapStore(api, "ns")  # type: ignore[arg-type] # a fake

    async def save() -> list[bool]:
        return [await store.save({WATCH: frozenset({DEPLOYMENT})}) for _ in range(3)]

    with capture_logs() as logs:
        assert virtually(save()) == [False, False, True]
    assert len(logs) == 1
    assert "Cannot save the kinds of dependents" in logs[0]["event"]
    assert list(api.saved.values()) == ["Deployment.v1.apps"]
