"""State of a rollout, as its ConfigMap contains it. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from runner.values.digests import digest

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
            return cls(**fields, limits=tuple(map(int, document["limits"])))
        except (KeyError, TypeError, ValueError):
            return None

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
