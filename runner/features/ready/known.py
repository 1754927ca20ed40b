"""State of one followed object: what its `Ready` contains, when that may change, and why its pods are not ready."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.core.dependents.kind import Owned
from runner.core.kube.health import HealthState
from runner.features.ready.readiness import Readiness
from runner.values.backoff import Backoff

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
    """See the module. Times are those of the event loop."""

    said: tuple[HealthState, str] | None = None
    """What `Ready` contains; None if that is not certain."""
    waits: bool = False
    """True if `Ready` is not about the dependents. A change of the object can end this."""
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
