"""State of a rollout, and the ConfigMap that contains it, in the operator's namespace.

A write contains the `resourceVersion` of the last read, so that all replicas and commands obey one state. A replica
cannot start an object after another one has paused the rollout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from runner.base import log
from runner.core.kube.client import EVERYTHING, Client, Selection
from runner.core.kube.state import ClusterState, Stored
from runner.values.digests import digest
from runner.values.objects import GVK, ObjectKey, ObjectRef

BY_USER = "a user paused it"


@dataclass(frozen=True, slots=True)
class State:
    """State of a rollout, in a ConfigMap. Sets contain objects by UID."""

    content: str = ""
    step: int = 0
    done: float = 0.0
    """When all objects of the step were done, in seconds since the epoch; 0: they are not."""
    paused: str = ""
    """Why no outdated object begins; empty if the rollout is not paused."""
    ended: bool = False
    salt: str = ""
    """Differs after each restart of the rollout."""
    limits: tuple[int, ...] = ()
    """Number of objects after each step, as computed last."""
    begun: frozenset[str] = field(default_factory=frozenset)
    """Outdated objects that may run the new content, or have run it. Each is stored before it runs."""
    ready: frozenset[str] = field(default_factory=frozenset)
    """Objects that were Ready after their run."""
    failed: frozenset[str] = field(default_factory=frozenset)
    excused: frozenset[str] = field(default_factory=frozenset)
    """Failed objects at the start, or at the time of the last `resume`."""
    used: bool = True
    """Whether an object began in this step: otherwise the next step needs no pause."""
    stable: str = ""
    """Content of the last rollout that ended: a rollout of it goes back."""
    asked: int = 0
    """Number of the last request to confirm the state; see `confirmed`."""
    confirmed: int = 0
    """Number of the last request after which an operator has found its content in this state."""

    @classmethod
    def parse(cls, text: str) -> State | None:
        """Read the ConfigMap's text; None if it is invalid."""
        try:
            document = orjson.loads(text)
            known = {
                **{name: getattr(_NEW, name) for name in _LATER},
                "stable": document["content"] if document["ended"] else "",
            }
            known |= document
            fields: dict[str, Any] = {name: type(getattr(_NEW, name))(known[name]) for name in _PLAIN}
            fields |= {name: frozenset(str(document[name]).split()) for name in _SETS}
            state = cls(**fields, limits=tuple(map(int, document["limits"])))
            state.written()  # no number of another size
        except (KeyError, TypeError, ValueError):
            return None
        return state if state.step >= 0 else None

    def written(self) -> str:
        """Return the ConfigMap's text."""
        sets = {name: " ".join(sorted(getattr(self, name))) for name in _SETS}
        fields: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        return orjson.dumps({**fields, "limits": self.limits, **sets}, option=orjson.OPT_INDENT_2).decode()

    def target(self, content: str) -> str:
        """Return the digest that objects must have, for the digest of the installed content."""
        return digest([content, self.salt]) if self.salt else content

    def begin(self, target: str, failed: Iterable[str] = ()) -> State:
        """Return the state at the start of a rollout. Only the pause of a user lasts.

        `failed` are the objects that ran this content and failed before: they are no failures of this rollout.
        """
        paused, excused = BY_USER if self.paused == BY_USER else "", frozenset(failed)
        return State(
            target,
            salt=self.salt,
            paused=paused,
            excused=excused,
            used=False,
            stable=self.stable,
            asked=self.asked,
            confirmed=self.confirmed,
        )

    def restarted(self, salt: str) -> State:
        """Return the state after a user has restarted the rollout. The operator begins it."""
        return replace(self.begin(""), salt=salt)

    def resumed(self) -> State:
        """Return the state after a user has resumed the rollout."""
        return replace(self, paused="", excused=self.failed)

    def started(self, uid: str) -> State:
        """Return the state with an outdated object that runs."""
        return replace(self, begun=self.begun | {uid}, used=True)

    @property
    def goes_back(self) -> bool:
        """True if the content is that of the last rollout that ended."""
        return self.content == self.stable

    @property
    def limit(self) -> int:
        """Number of objects that may have run the new content now."""
        if self.ended:
            return sys.maxsize
        return self.limits[min(self.step, len(self.limits) - 1)] if self.limits else 0


_NEW = State()
_SETS = ("begun", "ready", "failed", "excused")
_LATER = ("used", "stable", "asked", "confirmed")
"""Fields that the state of an earlier version lacks."""
_PLAIN = ("content", "step", "done", "paused", "ended", "salt", *_LATER)


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
