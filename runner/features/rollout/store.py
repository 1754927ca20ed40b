"""The ConfigMap with the state of a watch's rollout, in the operator's namespace.

A write contains the `resourceVersion` of the last read, so that all replicas and commands obey one state. A replica
cannot start an object after another one has paused the rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.base import log
from runner.core.kube.client import EVERYTHING, Client, Selection
from runner.core.kube.state import ClusterState, Stored
from runner.features.rollout.state import State
from runner.values.objects import GVK, ObjectKey, ObjectRef

_LABELS = {"app.kubernetes.io/managed-by": "ansible-operator", "app.kubernetes.io/component": "rollout"}
_PREFIX = "ansible-operator-rollout-"
_log = log.get(__name__)


@dataclass(slots=True)
class RolloutStore:
    """Storage of one kind's state."""

    client: Client
    namespace: str
    kind: GVK
    namespaces: Sequence[str] = ()
    """Namespaces of the objects; empty: all."""
    selection: Selection = EVERYTHING
    """Objects that the watch selects."""
    _was: Stored | None = None
    _state: ClusterState = field(init=False)

    def __post_init__(self) -> None:
        self._state = _storage(self.client, self.namespace)

    @classmethod
    async def all(cls, client: Client, namespace: str) -> list[RolloutStore]:
        """Return the stores of all rollouts in a namespace; empty: in all namespaces."""
        return [cls._of(client, stored) for stored in await _storage(client, namespace).all()]

    @classmethod
    def _of(cls, client: Client, stored: Stored) -> RolloutStore:
        data = stored.data
        namespaces = tuple(filter(None, data.get("namespaces", "").split(",")))
        selection = Selection(data.get("labels", ""), data.get("fields", ""))
        return cls(client, stored.namespace, GVK.named(data.get("kind", "")), namespaces, selection)

    @property
    def ref(self) -> ObjectRef:
        """The ConfigMap."""
        uid = self._was.uid if self._was is not None else ""
        return ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(self.namespace, _PREFIX + self._name), uid)

    @property
    def _name(self) -> str:
        return f"{self.kind.kind}.{self.kind.group}".rstrip(".").lower()

    async def load(self) -> State:
        """Read the state; the default if there is none, or an invalid one."""
        self._was = await self._state.read(self._name)
        if self._was is None:
            return State()
        state = State.parse(self._was.data.get("state", ""))
        if state is None:
            _log.warning("The state of the rollout is invalid; the rollout starts again", config_map=str(self.ref.key))
        return state or State()

    async def save(self, state: State) -> None:
        """Write the state. Raises ConflictError if another client wrote it since the last `load` or `save`."""
        data = {"kind": self.kind.name, "state": state.written(), "namespaces": ",".join(self.namespaces)}
        data |= {"labels": self.selection.labels, "fields": self.selection.fields}
        self._was = await self._state.write(self._name, data, self._was)


def _storage(client: Client, namespace: str) -> ClusterState:
    return ClusterState(client, namespace, "the state of a rollout", ("create", "get", "update"), _PREFIX, _LABELS)
