"""Decision whether an object is ready, from the health of its dependents, and when a change of it is written."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.core.dependents.kind import Owned
from runner.core.kube.health import HealthState, KindName
from runner.core.status import kstatus
from runner.core.status.kstatus import KstatusConditions
from runner.features.ready.feature import FAILED, NOT_READY, UNKNOWN
from runner.values.backoff import Backoff
from runner.values.objects import ObjectKey

KINDS: Sequence[KindName] = (
    ("", "PersistentVolumeClaim"),
    ("batch", "Job"),
    ("apps", "StatefulSet"),
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
)
"""Kinds that an object waits for. A message names the first: pods wait for claims, for example."""
FOLLOWED = frozenset({kstatus.SUCCEEDED, NOT_READY, FAILED, UNKNOWN})
"""Reasons of a `Ready` that follows the dependents. All others are about the object's own run."""
_REASONS: Mapping[HealthState, str] = {HealthState.FAILED: FAILED, HealthState.IN_PROGRESS: NOT_READY}


def _rank(owned: Owned) -> tuple[HealthState, int, ObjectKey]:
    """Return the place of a dependent among several; the lowest is named."""
    return owned.health.state, KINDS.index((owned.gvk.group, owned.gvk.kind)), owned.key


class Readiness(NamedTuple):
    """State of an object's dependents."""

    state: HealthState
    message: str = ""
    """Empty if all are ready."""
    first: Owned | None = None
    """The one that the message names."""

    @property
    def text(self) -> tuple[HealthState, str]:
        """The part of it that users see."""
        return self.state, self.message

    @property
    def conditions(self) -> KstatusConditions:
        """The conditions of an object whose last run succeeded."""
        if self.state is HealthState.READY:
            return kstatus.ready("True", kstatus.SUCCEEDED, kstatus.SUCCESS_MESSAGE)
        if self.state is HealthState.UNKNOWN:
            return kstatus.working(UNKNOWN, self.message)
        return kstatus.failed(_REASONS[self.state], self.message, final=self.state is HealthState.FAILED)


READY = Readiness(HealthState.READY)


def readiness(
    unready: Sequence[Owned], namespace: str, unknown: str = "", reasons: Mapping[str, str] | None = None
) -> Readiness:
    """Return the state of an object in `namespace`.

    `unready` are its dependents that are not ready. `unknown`: why there may be more of them; empty if all are known.
    `reasons`: why pods are not ready, by the UID of the dependent.
    """
    first = min(unready, key=_rank, default=None)
    if first is None or (unknown and first.health.state is HealthState.UNKNOWN):
        return Readiness(HealthState.UNKNOWN, unknown) if unknown else READY
    name = first.key.name if first.key.namespace == namespace else str(first.key)
    reason = (reasons or {}).get(first.uid, "")
    more = f" (and {len(unready) - 1} more)" if len(unready) > 1 else ""
    parts = [f"{first.gvk.kind} {name}", first.health.message, *([reason] if reason else [])]
    return Readiness(first.health.state, ": ".join(parts) + more, first)


TEXTS, CHANGES = (3, 30.0), (5, 60.0)
"""Writes in so many seconds that are not delayed: those of only the message, and those of the state."""
_LOOKS = Backoff(2.0, cap=60.0)
"""Before pods are read again."""


def pause(writes: Sequence[float], limit: tuple[int, float], now: float) -> float:
    """Return the seconds until the next write. `writes`: times of earlier ones; `limit`: so many in so many seconds."""
    most, period = limit
    return max(0.0, writes[-most] + period - now) if len(writes) >= most else 0.0


@dataclass(slots=True)
class Known:
    """State of one followed object: what its `Ready` contains, when that may change, and why its pods are not ready.

    Times are those of the event loop.
    """

    said: tuple[HealthState, str] | None = None
    """What `Ready` contains; None if that is not certain."""
    waits: bool = False
    """True if `Ready` is not about the dependents. A change of the object can end this."""
    has_run: bool = False
    """True if a run has succeeded: the kinds of all its dependents are watched."""
    uid: str = ""
    """UID of the workload whose pods were read."""
    reason: str = ""
    """Why its pods are not ready."""
    next_look: float = -math.inf
    """Time of the next read of its pods."""
    _message: str = ""
    _looks: int = 0
    _texts: deque[float] = field(default_factory=lambda: deque(maxlen=TEXTS[0]))
    _changes: deque[float] = field(default_factory=lambda: deque(maxlen=CHANGES[0]))
    _timer: asyncio.TimerHandle | None = None

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        """Replace the timer of the next comparison."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def ran(self, now: Readiness) -> None:
        """Note the state that is written with the result of a run. `Unknown` does not replace an earlier result."""
        self.said, self.waits = (None if now.state is HealthState.UNKNOWN else now.text), False

    def pause(self, now: Readiness, at: float) -> float:
        """Return the seconds until a state may be written."""
        if self.said is not None and self.said[0] is now.state:
            return pause(self._texts, TEXTS, at)
        return pause(self._changes, CHANGES, at)

    def wrote(self, now: Readiness, at: float) -> None:
        """Note a written state."""
        is_text = self.said is not None and self.said[0] is now.state
        (self._texts if is_text else self._changes).append(at)
        self.said = now.text

    def begin(self, first: Owned, at: float) -> None:
        """Note the workload whose pods explain the state. A change of its state restarts the backoff."""
        if self.uid != first.uid:
            self.uid, self.reason, self._looks, self.next_look = first.uid, "", 0, at
        elif self._message != first.health.message:
            self._looks, self.next_look = 0, min(self.next_look, at + _LOOKS.delay)
        self._message = first.health.message

    def looked(self, reason: str | None, at: float) -> None:
        """Note why the pods are not ready; None: it cannot be read now."""
        self.reason = self.reason if reason is None else reason
        self.next_look = at + _LOOKS.after(self._looks)
        self._looks += 1
