"""Storage of the records of created objects: ConfigMaps in the operator's namespace, or files in the runner folder.

Tenants can write neither. Each resource has an entry of its own, so that a write is small. A replica that lost its
Lease cannot overwrite the record of the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from runner.core.kube.client import Client
from runner.core.kube.state import ClusterState, FileState, StateStore, Stored
from runner.values.objects import GVK, ObjectKey, ObjectRef

_PREFIX = "ansible-operator-created-"
_FOLDER = "created-objects"
_LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "created-objects"}
_VERBS = ("create", "get", "list", "update", "delete")


def storage(client: Client, namespace: str | None, folder: Path) -> StateStore:
    """Return the storage of an operator. `namespace` is that of its pod, None outside a cluster."""
    if not namespace:
        return FileState(folder / _FOLDER)
    return ClusterState(client, namespace, "which objects the runs create", _VERBS, _PREFIX, _LABELS)


class RecordStore:
    """Storage of records by the UID of their resource.

    Raises:
        StateError: the storage refuses.
        ConflictError: another process has written the record; `load` it first, then.
        ApiError, ApiUnavailableError: temporary errors of the API server.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._known: dict[str, Stored | None] = {}
        """Each record as this process has read or written it last, without its data."""

    async def load(self, uid: str) -> str | None:
        """Return a record; None if there is none."""
        stored = await self._state.read(uid)
        self._known[uid] = stored and replace(stored, data={})
        return stored.data.get("record", "") if stored is not None else None

    async def save(self, owner: ObjectRef, text: str) -> None:
        """Write a record."""
        gvk = owner.gvk
        data = {"owner": f"{gvk.kind}.{gvk.version}.{gvk.group} {owner.key}", "record": text}
        written = await self._state.write(owner.uid, data, self._known.get(owner.uid))
        self._known[owner.uid] = replace(written, data={})

    async def remove(self, uid: str) -> None:
        """Delete a record."""
        self._known.pop(uid, None)
        await self._state.delete(uid)

    async def owners(self) -> Iterable[ObjectRef]:
        """Return the resources of all records."""
        owners = [_owner(stored.data.get("owner", ""), stored.name) for stored in await self._state.all()]
        return [owner for owner in owners if owner is not None]


def _owner(text: str, uid: str) -> ObjectRef | None:
    """Return the resource of a record; None if the text is invalid."""
    kind, _, key = text.partition(" ")
    gvk, (namespace, _, name) = GVK.named(kind), key.rpartition("/")
    return ObjectRef(gvk, ObjectKey(namespace, name), uid) if name and gvk.version else None
