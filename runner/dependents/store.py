"""Storage of the kinds that each watch's runs have created, so that a restarted operator watches them at once.

It also contains the record of the objects in other namespaces that runs wrote (`written`).

In a cluster this is a ConfigMap in the operator's namespace with a key per watch. The leader election Role of every
scaffolded project allows it (decision 8). Elsewhere it is a file in the runner folder. A missing entry costs little,
because the first run of each object finds the kinds again. A refusal is logged once, with the rule to add. The caller
saves again later.

Promises: `load` and `save` do not raise errors of the storage. They wait while the API server is unavailable.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from runner import log
from runner.config import atomic_file
from runner.dependents.written import RecordsByWatch, WriteRecord
from runner.errors import PASSING, ApiError, ConflictError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.objects import GVK, Object
from runner.watches.policy import JitteredBackoff

KindsByWatch: TypeAlias = Mapping[GVK, frozenset[GVK]]
"""Kinds that its runs have created, by watched kind."""

CONFIG_MAP = "ansible-operator-dependent-kinds"
_FILE = "dependent-kinds.json"
_WRITTEN = "written."
"""Prefix of the keys of records; kinds begin in upper case."""
_LONGEST_MANAGER = 128

_log = log.get(__name__)


class KindStore(ABC):
    """Storage of kinds across restarts. `read` and `write` are the texts of the entries by their keys."""

    @abstractmethod
    async def read(self) -> Mapping[str, str]:
        """Return all entries; none if they cannot be read."""

    @abstractmethod
    async def write(self, data: Mapping[str, str]) -> bool:
        """Write some entries; return False if the storage refused them."""

    async def load(self) -> KindsByWatch:
        """Return the saved kinds."""
        return _parse(await self.read())

    async def save(self, kinds: KindsByWatch) -> bool:
        """Save the kinds; return False if the storage refused them."""
        return await self.write(_spell(kinds))

    async def load_written(self) -> RecordsByWatch:
        """Return the saved records."""
        return _parse_records(await self.read())

    async def save_written(self, records: RecordsByWatch) -> bool:
        """Save the records; return False if the storage refused them."""
        return await self.write(_spell_records(records))


class FileStore(KindStore):
    """A file that operators with the same runner folder share."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._logged = log.Once()

    async def read(self) -> Mapping[str, str]:
        """See KindStore."""
        return await asyncio.to_thread(self._read)

    async def write(self, data: Mapping[str, str]) -> bool:
        """See KindStore."""
        try:
            await asyncio.to_thread(self._write, data)
        except OSError as error:
            if self._logged.is_new():
                _log.warning("Cannot save the kinds of dependents; retrying", file=str(self._path), error=str(error))
            return False
        self._logged.reset()
        return True

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(watch): str(kinds) for watch, kinds in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            _log.warning(
                "Cannot read the saved kinds of dependents; the next runs find them again",
                file=str(self._path),
                error=str(error),
            )
            return {}

    def _write(self, data: Mapping[str, str]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(self._path, json.dumps({**self._read(), **data}, indent=1, sort_keys=True))


class ConfigMapStore(KindStore):
    """A ConfigMap that the operators of a namespace share; each writes the keys of its own watches."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"
        self._saved: dict[str, str] = {}
        self._logged = log.Once()

    async def read(self) -> Mapping[str, str]:
        """See KindStore."""
        try:
            found = await self._try("GET")
        except NotFoundError:
            return {}
        except ApiError as error:
            self._warn(error)
            return {}
        data = found.get("data") or {}
        self._saved = {str(watch): str(kinds) for watch, kinds in data.items()}
        return self._saved

    async def write(self, data: Mapping[str, str]) -> bool:
        """See KindStore."""
        for watch, text in data.items():
            if self._saved.get(watch) == text:
                continue
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP, "namespace": self._namespace},
                "data": {watch: text},
            }
            # A field manager of its own for each key: what one operator applies takes nothing from another.
            manager = f"ansible-operator {watch}"[:_LONGEST_MANAGER]
            try:
                await self._try("PATCH", body, {"fieldManager": manager, "force": "true"})
            except ApiError as error:
                self._warn(error)
                return False
            self._saved[watch] = text
            self._logged.reset()
        return True

    async def _try(self, method: str, body: object = None, params: Mapping[str, str] | None = None) -> Object:
        """Retry until the API server is available. Raises ApiError if it refuses."""
        backoff = JitteredBackoff(1.0, 60.0)
        while True:
            try:
                return await self._client.request(
                    method, self._path, params=params, body=body, content_type=PatchType.APPLY.value
                )
            except (*PASSING, ConflictError) as error:
                wanted = error.retry_after if isinstance(error, ApiError) else None
                await asyncio.sleep(max(backoff.next(), wanted or 0.0))

    def _warn(self, error: ApiError) -> None:
        if not self._logged.is_new():
            return
        _log.warning(
            "Cannot save the kinds of dependents: after a restart, dependents are watched from the first run of their "
            "owner. The operator tries again within ten minutes",
            error=str(error),
            needs=f'in namespace {self._namespace}: apiGroups [""], resources [configmaps], verbs [get, create, patch]',
        )


def _spell(kinds: KindsByWatch) -> dict[str, str]:
    """Write each kind as kubectl does, `Deployment.v1.apps`, one per line."""
    return {_name(watch): "\n".join(sorted(map(_name, made))) for watch, made in kinds.items()}


def _parse(data: Mapping[str, str]) -> KindsByWatch:
    return {
        _gvk(watch): frozenset(_gvk(line) for line in text.split())
        for watch, text in data.items()
        if not watch.startswith(_WRITTEN)
    }


def _spell_records(records: RecordsByWatch) -> dict[str, str]:
    return {_WRITTEN + _name(watch): "\n".join((record.since, *record.marks)) for watch, record in records.items()}


def _parse_records(data: Mapping[str, str]) -> RecordsByWatch:
    written = (
        (_gvk(key.removeprefix(_WRITTEN)), text.split()) for key, text in data.items() if key.startswith(_WRITTEN)
    )
    return {watch: WriteRecord(lines[0], tuple(lines[1:])) for watch, lines in written if lines}


def _name(gvk: GVK) -> str:
    return f"{gvk.kind}.{gvk.version}.{gvk.group}".rstrip(".")


def _gvk(name: str) -> GVK:
    kind, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    return GVK(group, version, kind)
