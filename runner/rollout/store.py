"""The ConfigMap with the state of a watch's rollout, in the operator's namespace.

A write contains the `resourceVersion` of the last read, so that all replicas and commands obey one state. A replica
cannot start an object after another one has paused the rollout.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from runner import log
from runner.errors import NotFoundError
from runner.kube.client import EVERYTHING, Client, Selection
from runner.objects import GVK, Object, ObjectKey, ObjectRef, metadata, uid_of
from runner.rollout.state import State

LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "rollout"}
_NAME = "ansible-operator-rollout-"
_log = log.get(__name__)


@dataclass(slots=True)
class RolloutStore:
    """Storage of one kind's state."""

    client: Client
    namespace: str
    kind: GVK
    namespaces: Collection[str] = ()
    """Namespaces of the objects; empty: all."""
    selection: Selection = EVERYTHING
    """Objects that the watch selects."""
    _version: str = ""
    _uid: str = ""

    @property
    def ref(self) -> ObjectRef:
        """The ConfigMap."""
        name = f"{_NAME}{self.kind.kind}.{self.kind.group}".rstrip(".").lower()
        return ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(self.namespace, name), self._uid)

    async def load(self) -> State:
        """Read the state; the default if there is none, or an invalid one."""
        try:
            found = await self.client.request("GET", f"{self._path}/{self.ref.key.name}")
        except NotFoundError:
            self._version = ""
            return State()
        self._note(found)
        state = State.parse(str((found.get("data") or {}).get("state", "")))
        if state is None:
            _log.warning("The state of the rollout is invalid; the rollout starts again", config_map=str(self.ref.key))
        return state or State()

    async def save(self, state: State) -> None:
        """Write the state. Raises ConflictError if another client wrote it since the last `load` or `save`."""
        name = self.ref.key.name
        meta: Object = {"name": name, "namespace": self.namespace, "labels": LABELS}
        meta |= {"resourceVersion": self._version} if self._version else {}
        kind = f"{self.kind.kind}.{self.kind.version}.{self.kind.group}".rstrip(".")
        data = {"kind": kind, "state": state.written(), "namespaces": ",".join(self.namespaces)}
        data |= {"labels": self.selection.labels, "fields": self.selection.fields}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        method, path = ("PUT", f"{self._path}/{name}") if self._version else ("POST", self._path)
        self._note(await self.client.request(method, path, body=body))

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def _note(self, found: Object) -> None:
        self._version, self._uid = str(metadata(found).get("resourceVersion", "")), uid_of(found)
