"""Entries of state, in files and on a simulated API server. The real one is in tests/integration."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from runner.core.kube import answers
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import CONFIG_MAPS, SECRETS, ClusterState, FileState, StateError, StateStore
from runner.values.errors import (
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OperatorError,
    ServerError,
)
from runner.values.objects import Object, ObjectKey

_DENIED = (
    'configmaps "of-one" is forbidden: User "a" cannot get resource "configmaps" in API group "" in the namespace "ns"'
)


class ApiServer:
    """Stores objects, and answers the next requests with errors."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.errors: list[Exception] = []
        self.sent: list[str] = []
        self._version = 0

    async def get(self, _resource: ApiResource, key: ObjectKey) -> Object:
        self._note("GET")
        if key.name not in self.objects:
            raise NotFoundError(f"{key} not found", status=404)
        return self.objects[key.name]

    async def create(self, _resource: ApiResource, _namespace: str, obj: Object) -> Object:
        self._note("POST")
        if obj["metadata"]["name"] in self.objects:
            raise ConflictError("already exists", status=409)
        return self._put(obj)

    async def patch(self, resource: ApiResource, key: ObjectKey, body: Object, **options: Any) -> Object:
        if options["content_type"] is PatchType.APPLY:
            self._note(f"APPLY {options['params']['fieldManager']}")
            return self._put({**body, "data": {**self.objects.get(key.name, {}).get("data", {}), **body["data"]}})
        return self._replace("PATCH", await self.get(resource, key), body)

    async def request(self, method: str, path: str, body: Any = None, params: Any = None) -> Object:
        if method == "GET":
            self._note(f"LIST {params['labelSelector']}")
            return {"items": list(self.objects.values())}
        return self._replace(method, await self.get(CONFIG_MAPS, ObjectKey("ns", path.rpartition("/")[2])), body)

    async def delete(self, resource: ApiResource, key: ObjectKey, *, uid: str) -> None:
        if uid not in {"", (await self.get(resource, key))["metadata"]["uid"]}:
            raise ConflictError("another UID", status=409)
        del self.objects[key.name]

    def _note(self, request: str) -> None:
        self.sent.append(request)
        if self.errors:
            raise self.errors.pop(0)

    def _replace(self, method: str, found: Object, body: Object) -> Object:
        self._note(method)
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ConflictError("modified", status=409)
        kept = found["data"] if method == "PATCH" else {}
        data = {name: text for name, text in {**kept, **body["data"]}.items() if text is not None}
        return self._put({**body, "metadata": {**found["metadata"], **body["metadata"]}, "data": data})

    def _put(self, obj: Object) -> Object:
        self._version += 1
        meta = {"uid": f"uid-{self._version}", **obj["metadata"], "resourceVersion": str(self._version)}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in obj.pop("stringData", {}).items()}
        self.objects[meta["name"]] = {"data": encoded, **obj, "metadata": meta}
        return self.objects[meta["name"]]


def cluster(api: ApiServer, *verbs: str, **options: Any) -> ClusterState:
    return ClusterState(cast("Client", api), "ns", "the records", verbs or ("get", "update"), "of-", **options)


@pytest.fixture(params=["update", "patch", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return FileState(tmp_path / "folder") if request.param == "file" else cluster(ApiServer(), request.param)


async def test_an_entry_is_as_it_was_written_last(store: StateStore) -> None:
    assert await store.read("one") is None
    first = await store.write("one", {"a": "1", "b": "2"}, None)
    second = await store.write("one", {"b": "3"}, first)
    found = await store.read("one")
    assert found is not None
    assert (found.name, found.data, found.version) == ("one", {"b": "3"}, second.version)
    await store.write("two", {"c": "4"}, None)
    assert {each.name: each.data for each in await store.all()} == {"one": {"b": "3"}, "two": {"c": "4"}}
    await store.delete("one")
    await store.delete("one")
    assert await store.read("one") is None


async def test_a_writer_that_does_not_know_the_last_state_is_refused(store: StateStore) -> None:
    first = await store.write("one", {"a": "1"}, None)
    with pytest.raises(ConflictError):
        await store.write("one", {"a": "2"}, None)
    await store.write("one", {"a": "2"}, first)
    with pytest.raises(ConflictError):
        await store.write("one", {"a": "3"}, first)
    await store.delete("one")
    with pytest.raises(ConflictError):
        await store.write("one", {"a": "3"}, first)
    assert await store.read("one") is None


async def test_texts_of_several_writers_stay(store: StateStore) -> None:
    await store.put("one", "a", "1")
    await store.put("one", "b", "2")
    await store.put("one", "a", "3")
    found = await store.read("one")
    assert found is not None
    assert found.data == {"a": "3", "b": "2"}


async def test_an_entry_that_another_process_creates_at_the_same_time_is_used(store: StateStore) -> None:
    assert (await store.ensure("one", lambda: {"a": "1"})).data == {"a": "1"}
    assert (await store.ensure("one", lambda: {"a": "2"})).data == {"a": "1"}
    api = ApiServer()
    other = cluster(api)
    await other.write("one", {"a": "1"}, None)
    api.errors = [NotFoundError("not yet", status=404)]
    assert (await other.ensure("one", lambda: {"a": "2"})).data == {"a": "1"}


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ForbiddenError("no", status=403), StateError),
        (InvalidError("no", status=422), StateError),
        (ServerError("etcd", status=500), ServerError),
        (ApiUnavailableError("reset"), ApiUnavailableError),
    ],
    ids=["403", "422", "500", "reset"],
)
async def test_what_is_unknown_does_not_count_as_absent(error: OperatorError, raised: type[Exception]) -> None:
    api = ApiServer()
    store = cluster(api)
    for call in (store.read("one"), store.all(), store.ensure("one", dict), store.delete("one")):
        api.errors = [error]
        with pytest.raises(raised):
            await call
    assert api.objects == {}


async def test_a_missing_right_names_the_rule_with_all_verbs_that_the_entries_need() -> None:
    api = ApiServer()
    api.errors = [answers.of_status("GET /x", {"code": 403, "message": _DENIED}) for _ in range(2)]
    rule = 'in namespace ns: {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}'
    with pytest.raises(StateError, match=r"^cannot read the records: GET /x: ") as found:
        await cluster(api, "get", "create", "patch").read("one")
    assert str(found.value).endswith(f"(HTTP 403); add to the operator's Role {rule}")


async def test_the_content_of_a_secret_is_text_and_its_labels_select_the_entries() -> None:
    api = ApiServer()
    store = cluster(api, resource=SECRETS, labels={"a": "b"}, created={"annotations": {"c": "d"}})
    written = await store.write("one", {"ca.crt": "PEM"}, None)
    assert (written.data, written.annotations) == ({"ca.crt": "PEM"}, {"c": "d"})
    (obj,) = api.objects.values()
    assert (obj["kind"], obj["data"], obj["metadata"]["labels"]) == ("Secret", {"ca.crt": "UEVN"}, {"a": "b"})
    assert [each.name for each in await store.all()] == ["one"]
    assert api.sent[-1] == "LIST a=b"


async def test_only_the_entry_that_was_read_is_deleted() -> None:
    store = cluster(ApiServer())
    written = await store.write("one", {}, None)
    with pytest.raises(ConflictError):
        await store.delete("one", "another")
    await store.delete("one", written.uid)
    assert await store.read("one") is None


async def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    await FileState(tmp_path / "below").write("one", {}, None)
    (file,) = (tmp_path / "below").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"7", b"\xff"])
async def test_a_damaged_file_is_an_error_that_names_the_file(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "one.json").write_bytes(damage)
    store = FileState(tmp_path)
    for reading in (store.read("one"), store.all(), store.write("one", {}, None)):
        with pytest.raises(StateError, match=r"one.json: .*; remove the file"):
            await reading


async def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"cannot write .*; make the folder writable"):
        await FileState(tmp_path / "file" / "below").write("one", {}, None)
