"""Kinds of dependents that are kept in a file, and answers of an API server that keeps them in a ConfigMap.

The ConfigMap itself is tested on a real API server.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from runner.core.dependents.ownership import WriteRecord
from runner.core.dependents.store import KindStore, storage
from runner.core.kube.client import Client
from runner.core.kube.state import FileState, Stored
from runner.values.errors import (
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
)
from runner.values.objects import GVK, Object
from tests.kit.virtual_time import virtually

WATCH = GVK("cache.example.com", "v1alpha1", "Memcached")
CORE = GVK("", "v1", "Namespace")
DEPLOYMENT = GVK("apps", "v1", "Deployment")
CONFIG_MAP = GVK("", "v1", "ConfigMap")


def in_folder(folder: Path) -> KindStore:
    return KindStore(FileState(folder))


async def test_saved_kinds_are_loaded_again(tmp_path: Path) -> None:
    kinds = {WATCH: frozenset({DEPLOYMENT, CONFIG_MAP}), CORE: frozenset[GVK]()}
    assert (await in_folder(tmp_path / "below").load())[0] == {}
    await in_folder(tmp_path / "below").save(kinds, {})
    assert (await in_folder(tmp_path / "below").load())[0] == kinds


async def test_operators_that_share_a_folder_take_nothing_from_each_other(tmp_path: Path) -> None:
    await in_folder(tmp_path).save({WATCH: frozenset({DEPLOYMENT})}, {})
    await in_folder(tmp_path).save({CORE: frozenset({CONFIG_MAP})}, {})
    assert (await in_folder(tmp_path).load())[0] == {WATCH: {DEPLOYMENT}, CORE: {CONFIG_MAP}}


async def test_records_of_written_objects_are_kept_beside_the_kinds(tmp_path: Path) -> None:
    store = in_folder(tmp_path)
    records = {WATCH: WriteRecord("2026-01-02T00:00:00Z", ("a", "b")), CORE: WriteRecord("2026-01-02T00:00:00Z", ())}
    await store.save({WATCH: frozenset({DEPLOYMENT})}, records)
    assert (await store.load())[1] == records
    assert (await store.load())[0] == {WATCH: {DEPLOYMENT}}


async def test_another_key_of_the_entry_is_no_watch_and_remains(tmp_path: Path) -> None:
    await FileState(tmp_path).put("dependent-kinds", "last-run-key", "abc")
    await in_folder(tmp_path).save({CORE: frozenset({CONFIG_MAP})}, {})
    kinds, records = await in_folder(tmp_path).load()
    assert kinds == {CORE: {CONFIG_MAP}}
    assert not records
    stored = await FileState(tmp_path).read("dependent-kinds")
    assert stored is not None
    assert stored.data["last-run-key"] == "abc"


async def test_kinds_and_records_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads = in_folder(tmp_path), list[str]()
    read = FileState._read

    def counted(state: FileState, name: str) -> Stored | None:
        reads.append(name)
        return read(state, name)

    monkeypatch.setattr(FileState, "_read", counted)
    await store.load()
    assert reads == ["dependent-kinds"]


async def test_a_folder_that_cannot_be_used_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    store = in_folder(tmp_path / "file")
    assert (await store.load())[0] == {}
    assert not await store.save({WATCH: frozenset({DEPLOYMENT})}, {})
    assert capsys.readouterr().out.count("Cannot save the kinds of dependents") == 1


class ApiServer:
    """Answers of an API server; then it accepts every request."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.saved: dict[str, str] = {}

    async def patch(self, _resource: object, _key: object, body: Object, **_: object) -> Object:
        if self.errors:
            raise self.errors.pop(0)
        self.saved |= body["data"]
        return body


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
    assert virtually(in_cluster(api).save({WATCH: frozenset({DEPLOYMENT})}, {}))
    assert list(api.saved.values()) == ["Deployment.v1.apps"]


def test_a_refused_save_is_one_warning_and_works_as_soon_as_it_is_permitted() -> None:
    api = ApiServer(*[ForbiddenError("no", status=403)] * 2)
    store = in_cluster(api)

    async def save() -> list[bool]:
        return [await store.save({WATCH: frozenset({DEPLOYMENT})}, {}) for _ in range(3)]

    with capture_logs() as logs:
        assert virtually(save()) == [False, False, True]
    assert len(logs) == 1
    assert "Cannot save the kinds of dependents" in logs[0]["event"]
    assert list(api.saved.values()) == ["Deployment.v1.apps"]


def in_cluster(api: ApiServer) -> KindStore:
    return KindStore(storage(cast("Client", api), "ns", Path()))
