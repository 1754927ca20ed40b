"""Storage of the records of created objects: ConfigMaps in the operator's namespace, or files in the runner folder.

Tenants can write neither. Each resource has its own ConfigMap, so that a write is small. A write contains the
`resourceVersion` of the last one: a replica that lost its Lease cannot overwrite the record of the next one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from runner.config import atomic_file
from runner.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, OperatorError
from runner.kube.client import Client
from runner.objects import GVK, Object, ObjectKey, ObjectRef, key_of, metadata

_NAME = "ansible-operator-created-"
_FOLDER = "created-objects"
_LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "created-objects"}
_ATTEMPTS = 3
RULES = "apiGroups: [''], resources: [configmaps], verbs: [create, get, list, update, delete]"
"""Rule that the records need in the operator's namespace."""


class StoreError(OperatorError):
    """A record cannot be read or written, until an administrator changes something."""


class RecordStore(Protocol):
    """Storage of records by the UID of their resource.

    Raises:
        StoreError: the storage refuses.
        ApiError, ApiUnavailableError: temporary errors of the API server.
    """

    async def load(self, uid: str) -> str | None:
        """Return a record; None if there is none."""
        ...

    async def save(self, owner: ObjectRef, text: str) -> None:
        """Write a record."""
        ...

    async def remove(self, uid: str) -> None:
        """Delete a record."""
        ...

    async def owners(self) -> Iterable[ObjectRef]:
        """Return the resources of all records."""
        ...


class FileRecords:
    """Files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER

    async def load(self, uid: str) -> str | None:
        """See RecordStore."""
        found = await asyncio.to_thread(self._read, self._path(uid))
        return found["record"] if found is not None else None

    async def save(self, owner: ObjectRef, text: str) -> None:
        """See RecordStore."""
        content = json.dumps({"owner": _spell(owner), "record": text})
        try:
            await asyncio.to_thread(self._write, self._path(owner.uid), content)
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path(owner.uid)}: {error.strerror}; make the folder writable"
            ) from error

    async def remove(self, uid: str) -> None:
        """See RecordStore."""
        try:
            await asyncio.to_thread(self._path(uid).unlink, missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot remove {self._path(uid)}: {error.strerror}") from error

    async def owners(self) -> Iterable[ObjectRef]:
        """See RecordStore."""
        return await asyncio.to_thread(self._owners)

    def _owners(self) -> list[ObjectRef]:
        found = []
        for path in self._folder.glob("*.json"):
            record = self._read(path)
            owner = _owner(record["owner"], path.stem) if record is not None else None
            if owner is not None:
                found.append(owner)
        return found

    def _path(self, uid: str) -> Path:
        return self._folder / f"{Path(uid).name}.json"

    def _read(self, path: Path) -> dict[str, str] | None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {"owner": str(found["owner"]), "record": str(found["record"])}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"cannot read {path}: {error}; remove the file") from error

    def _write(self, path: Path, content: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(path, content)


class ConfigMapRecords:
    """ConfigMaps in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._versions: dict[str, str] = {}
        """The `resourceVersion` of each record that this process has read or written last."""

    async def load(self, uid: str) -> str | None:
        """See RecordStore."""
        try:
            found = await self._request("GET", self._of(uid))
        except NotFoundError:
            self._versions.pop(uid, None)
            return None
        self._note(uid, found)
        return str((found.get("data") or {}).get("record", ""))

    async def save(self, owner: ObjectRef, text: str) -> None:
        """See RecordStore. Raises ConflictError if another client wrote the record; `load` it first, then."""
        uid = owner.uid
        for _ in range(_ATTEMPTS):
            version = self._versions.get(uid)
            body = self._body(owner, text, version)
            try:
                if version is None:
                    written = await self._request("POST", self._path, body)
                else:
                    written = await self._request("PUT", self._of(uid), body)
            except ConflictError:
                if version is not None:
                    raise
                await self.load(uid)
            except NotFoundError:
                if version is None:
                    raise
                del self._versions[uid]
            else:
                self._note(uid, written)
                return
        raise StoreError(f"the record {self._of(uid)} changes all the time; find the client that writes it")

    async def remove(self, uid: str) -> None:
        """See RecordStore."""
        self._versions.pop(uid, None)
        try:
            await self._request("DELETE", self._of(uid))
        except NotFoundError:
            return

    async def owners(self) -> Iterable[ObjectRef]:
        """See RecordStore."""
        found = await self._request(
            "GET", self._path, params={"labelSelector": ",".join(map("=".join, _LABELS.items()))}
        )
        owners = []
        for item in found.get("items") or []:
            owner = _owner((item.get("data") or {}).get("owner", ""), key_of(item).name.removeprefix(_NAME))
            if owner is not None:
                owners.append(owner)
        return owners

    def _of(self, uid: str) -> str:
        return f"{self._path}/{_NAME}{uid}"

    def _body(self, owner: ObjectRef, text: str, version: str | None) -> Object:
        meta: Object = {"name": f"{_NAME}{owner.uid}", "namespace": self._namespace, "labels": _LABELS}
        if version is not None:
            meta["resourceVersion"] = version
        data = {"owner": _spell(owner), "record": text}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    def _note(self, uid: str, obj: Object) -> None:
        self._versions[uid] = str(metadata(obj).get("resourceVersion", ""))

    async def _request(
        self, method: str, path: str, body: Object | None = None, params: dict[str, str] | None = None
    ) -> Object:
        try:
            return await self._client.request(method, path, body=body, params=params)
        except ForbiddenError as error:
            raise StoreError(
                f"cannot store which objects the runs create: {error}; add to a Role in namespace {self._namespace}: "
                f"{{{RULES}}}"
            ) from error
        except InvalidError as error:
            raise StoreError(f"cannot store which objects the runs create: {error}") from error


def _spell(owner: ObjectRef) -> str:
    return f"{owner.gvk.kind}.{owner.gvk.version}.{owner.gvk.group} {owner.key}"


def _owner(text: str, uid: str) -> ObjectRef | None:
    """Return the resource of a record; None if the text is invalid."""
    kind, _, key = text.partition(" ")
    name, _, rest = kind.partition(".")
    version, _, group = rest.partition(".")
    namespace, _, own = key.rpartition("/")
    return ObjectRef(GVK(group, version, name), ObjectKey(namespace, own), uid) if own and version else None
