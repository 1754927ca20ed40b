"""Small state of the operator: texts by key, in ConfigMaps and Secrets of one namespace, or in files of one folder.

An absent entry is `None`. If the content is unknown, every method raises: `StateError` if the storage refuses until
an administrator acts, ApiError or ApiUnavailableError for a temporary error. A write names the entry that it replaces:
ConflictError means that another process has created, written or deleted the entry meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runner.base.config import atomic_file
from runner.core.kube import rights
from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.core.kube.meaning import Meaning, meaning
from runner.core.kube.rights import Right
from runner.values.backoff import JitteredBackoff
from runner.values.errors import PASSING, ApiError, ConflictError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, annotations_of, key_of, uid_of, version_of

CONFIG_MAPS = ApiResource(GVK("", "v1", "ConfigMap"), "configmaps", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced
SECRETS = ApiResource(GVK("", "v1", "Secret"), "secrets", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced
_LONGEST_MANAGER = 128
T = TypeVar("T")


class StateError(ApiError):
    """The storage refuses a request until an administrator changes something. `status` is 0 for a file."""


async def until_available(send: Callable[[], Awaitable[T]]) -> T:
    """Retry until the API server is available and no other operator writes. Raises ApiError for a refusal."""
    backoff = JitteredBackoff(1.0, 60.0)
    while True:
        try:
            return await send()
        except (*PASSING, ConflictError) as error:
            wanted = error.retry_after if isinstance(error, ApiError) else None
            await asyncio.sleep(max(backoff.next(), wanted or 0.0))


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry as it was read or written last."""

    name: str
    data: Mapping[str, str]
    version: str
    """Differs after each change."""
    namespace: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


class StateStore(ABC):
    """Storage of entries by name."""

    @abstractmethod
    async def read(self, name: str) -> Stored | None:
        """Return an entry; None if it does not exist."""

    @abstractmethod
    async def write(self, name: str, data: Mapping[str, str], was: Stored | None) -> Stored:
        """Replace an entry, or create it if `was` is None. Raises ConflictError unless it is as it was."""

    @abstractmethod
    async def put(self, name: str, key: str, text: str) -> None:
        """Write one text of an entry, which is created if it does not exist. Other texts stay."""

    @abstractmethod
    async def delete(self, name: str, uid: str = "") -> None:
        """Delete an entry if it exists. With `uid`, raises ConflictError if another one has the name."""

    @abstractmethod
    async def all(self) -> list[Stored]:
        """Return all entries."""

    async def ensure(self, name: str, make: Callable[[], Mapping[str, str]]) -> Stored:
        """Return an entry; create it with the result of `make` if it does not exist."""
        stored = await self.read(name)
        if stored is not None:
            return stored
        try:
            return await self.write(name, make(), None)
        except ConflictError:  # another process was faster
            stored = await self.read(name)
            if stored is None:
                raise
            return stored


@dataclass(frozen=True, slots=True)
class ClusterState(StateStore):
    """ConfigMaps or Secrets in one namespace."""

    client: Client
    namespace: str
    """Empty: `all` reads all namespaces."""
    about: str
    """What is stored, for errors."""
    verbs: tuple[str, ...]
    """Rights that the entries need. An entry is replaced with `patch` if this is among them, else with `update`."""
    prefix: str = ""
    """Beginning of the names of the objects."""
    labels: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, object] = field(default_factory=dict)
    """Further metadata of entries that are created."""
    resource: ApiResource = CONFIG_MAPS

    async def read(self, name: str) -> Stored | None:
        """See StateStore."""
        try:
            with self._refusals("read"):
                return self._stored(await self.client.get(self.resource, self._key(name)))
        except NotFoundError:
            return None

    async def write(self, name: str, data: Mapping[str, str], was: Stored | None) -> Stored:
        """See StateStore."""
        meta: Object = {"name": self.prefix + name, "namespace": self.namespace}
        meta |= {"labels": dict(self.labels)} if self.labels else {}
        content = "stringData" if self.resource is SECRETS else "data"
        body: Object = {"apiVersion": "v1", "kind": self.resource.gvk.kind, "metadata": meta, content: dict(data)}
        with self._refusals("store"):
            if was is None:
                meta |= self.created
                return self._stored(await self.client.create(self.resource, self.namespace, body))
            meta |= {"resourceVersion": was.version}
            try:
                if "patch" in self.verbs:
                    body[content] = {**dict.fromkeys(was.data), **data}
                    answer = await self.client.patch(self.resource, self._key(name), body, content_type=PatchType.MERGE)
                else:
                    path = self.resource.path(*self._key(name))
                    answer = await self.client.request("PUT", path, body=body)
            except NotFoundError as error:
                raise ConflictError(f"another client deleted it: {error}", status=error.status) from error
        return self._stored(answer)

    async def put(self, name: str, key: str, text: str) -> None:
        """See StateStore. Other than `write`, it needs the right to create an object of this name only."""
        meta = {"name": self.prefix + name, "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": self.resource.gvk.kind, "metadata": meta, "data": {key: text}}
        # A field manager for each key: what one operator applies removes nothing of another one.
        params = {"fieldManager": f"ansible-operator {key}"[:_LONGEST_MANAGER], "force": "true"}
        with self._refusals("store"):
            await self.client.patch(self.resource, self._key(name), body, content_type=PatchType.APPLY, params=params)

    async def delete(self, name: str, uid: str = "") -> None:
        """See StateStore."""
        try:
            with self._refusals("delete"):
                await self.client.delete(self.resource, self._key(name), uid=uid)
        except NotFoundError:
            return

    async def all(self) -> list[Stored]:
        """See StateStore. The labels select the entries."""
        params = {"labelSelector": ",".join(map("=".join, self.labels.items()))}
        with self._refusals("list"):
            answer = await self.client.request("GET", self.resource.path(self.namespace), params=params)
        return [self._stored(item) for item in answer.get("items") or []]

    def _key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, self.prefix + name)

    def _stored(self, obj: Object) -> Stored:
        key, data = key_of(obj), {str(name): str(text) for name, text in (obj.get("data") or {}).items()}
        if self.resource is SECRETS:
            data = {name: base64.b64decode(text).decode(errors="replace") for name, text in data.items()}
        version = version_of(obj)
        name = key.name.removeprefix(self.prefix)
        return Stored(name, data, version, key.namespace, uid_of(obj), annotations_of(obj))

    @contextmanager
    def _refusals(self, verb: str) -> Iterator[None]:
        """Raise StateError for a refusal, with the rule to add if rights are missing."""
        try:
            yield
        except ApiError as error:
            if meaning(error) is not Meaning.REFUSED:
                raise
            text, advice, _ = str(error).partition(rights.ADVICE)
            if advice:
                needed = Right("", self.namespace, "", self.resource.plural, "")
                role = rights.where(needed) + (f" in namespace {self.namespace}" if self.namespace else "")
                text += f"{advice}{role}: {rights.rule(needed, self.verbs)}"
            message = f"cannot {verb} {self.about}: {text}"
            raise StateError(message, status=error.status, reason=error.reason) from error


@dataclass(frozen=True, slots=True)
class FileState(StateStore):
    """JSON files in one folder, which only this user can read."""

    folder: Path

    async def read(self, name: str) -> Stored | None:
        """See StateStore."""
        return await asyncio.to_thread(self._read, name)

    async def write(self, name: str, data: Mapping[str, str], was: Stored | None) -> Stored:
        """See StateStore."""
        return await asyncio.to_thread(self._write, name, data, was)

    async def put(self, name: str, key: str, text: str) -> None:
        """See StateStore."""
        await asyncio.to_thread(self._put, name, key, text)

    async def delete(self, name: str, uid: str = "") -> None:  # noqa: ARG002 - files have no UID
        """See StateStore."""
        with self._refusals(name, "remove", "make the folder writable"):
            await asyncio.to_thread(self._path(name).unlink, missing_ok=True)

    async def all(self) -> list[Stored]:
        """See StateStore."""
        return await asyncio.to_thread(
            lambda: [stored for path in self.folder.glob("*.json") if (stored := self._read(path.stem)) is not None]
        )

    def _path(self, name: str) -> Path:
        return self.folder / f"{Path(name).name}.json"

    def _read(self, name: str) -> Stored | None:
        with self._refusals(name, "read", "remove the file"):
            try:
                text = self._path(name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
            data = {str(key): str(value) for key, value in dict(json.loads(text)).items()}
        return Stored(name, data, hashlib.sha256(text).hexdigest())

    def _write(self, name: str, data: Mapping[str, str], was: Stored | None) -> Stored:
        current = self._read(name)
        if (current.version if current else "") != (was.version if was else ""):
            raise ConflictError(f"another process changed {self._path(name)}", status=0)
        text = json.dumps(data, indent=1, sort_keys=True)
        with self._refusals(name, "write", "make the folder writable"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_file.write(self._path(name), text)
        return Stored(name, data, hashlib.sha256(text.encode()).hexdigest())

    def _put(self, name: str, key: str, text: str) -> None:
        current = self._read(name)
        self._write(name, {**(current.data if current is not None else {}), key: text}, current)

    @contextmanager
    def _refusals(self, name: str, verb: str, advice: str) -> Iterator[None]:
        """Raise StateError if the file cannot be used."""
        try:
            yield
        except (OSError, ValueError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StateError(f"cannot {verb} {self._path(name)}: {reason}; {advice}", status=0) from error
