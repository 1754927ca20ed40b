"""State of a watch, with its log: whether it works, what it covers, and whether its objects are known.

Rule: unknown is not empty, and not absent. Code that deletes, starts or ends something because an object does not exist
needs `ABSENT`. An object is unknown if its kind is not served, or its namespace is refused or was not listed yet. It is
unknown while the watch is interrupted. Two observations show an absence: an open watch after a complete list, and a 404
about the object (`NotFoundError`). A 404 about the kind (`KindNotFoundError`) shows nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from runner.values.objects import GVK


class Known(Enum):
    """Knowledge that is certain."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Objects of a kind whose existence is unknown."""

    gvk: GVK
    namespace: str
    """Empty: in all namespaces, or cluster-scoped."""
    why: str
    since: float
    """Time in seconds since the epoch."""

    def __str__(self) -> str:
        """Return the cause as the end of a sentence."""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"the objects of the kind {self.gvk.kind}{where} are unknown: {self.why}"


Presence: TypeAlias = Known | Unknown
PRESENT, ABSENT = Known.PRESENT, Known.ABSENT


_HARMLESS_GAP = 1.0
"""Seconds between two watches that do not count as a gap if the first one ended regularly."""


class WatchState(StrEnum):
    """State of a watcher."""

    CONNECTING = "connecting"
    LISTING = "listing"
    LIVE = "live"
    WAITING_FOR_KIND = "waiting for kind"
    FAILING = "failing"


class WatchHealth:
    """State of a watch of one kind in one namespace (`""`: all). Times are those of the event loop's clock."""

    def __init__(self, gvk: GVK, namespace: str, logger: FilteringBoundLogger, repeat_log: float) -> None:
        """`repeat_log` is the interval in seconds of the log for an error that lasts."""
        self.namespace = namespace
        self.state = WatchState.CONNECTING
        self.last_contact: float | None = None
        """Time of the last contact with the server."""
        self.last_error: str | None = None
        """Current error; None if there is none."""
        self.is_refused = False
        """Whether the API server refuses the watch now."""
        self.is_redundant = False
        """Whether the watch of another namespace covers the kind, which is cluster-scoped."""
        self.is_listed = False
        """Whether a list was ever complete."""
        self.unknown: Unknown | None = Unknown(gvk, namespace, "they were not listed yet", time.time())
        """Why it is unknown which objects exist; None while it is known."""
        self.known_again: Callable[[], None] = lambda: None
        """Called when it becomes known which objects exist."""
        self.unbroken_period: int | None = None
        """Number of the current period without a gap in the changes; None if there is none.

        A watch that the server ends regularly and that is reopened at once makes no gap.
        """
        self._gvk = gvk
        self._is_absent = False
        """Whether the API server did not serve the kind at the last discovery."""
        self._unbroken_periods = 0
        self._ended_well = -math.inf
        """Time of the last regular end of a watch."""
        self._log = logger
        self._repeat_log = repeat_log
        self._logged: tuple[str, float] = ("", 0.0)

    @property
    def problem(self) -> str:
        """Why the objects are not watched; empty if they are, or if the kind is not served."""
        if self.state in {WatchState.LIVE, WatchState.WAITING_FOR_KIND}:
            return ""
        return f"{self.state}: {self.last_error or 'no response yet'}"

    def contacted(self) -> None:
        """Note that the server responded."""
        self.last_contact = asyncio.get_running_loop().time()

    def served(self) -> None:
        """Note that the server serves the kind."""
        self.contacted()
        if self._is_absent:
            self._is_absent = False
            self.state, self.last_error = WatchState.CONNECTING, None
            self._log.info("The API server serves this kind now")

    def absent(self, error: Exception) -> None:
        """Note that the server does not serve the kind."""
        self.contacted()
        if not self._is_absent:
            self._log.warning("The API server does not serve this kind; waiting for it", error=str(error))
        self._is_absent, self.is_refused = True, False
        self.state, self.last_error = WatchState.WAITING_FOR_KIND, str(error)

    def accepted(self, state: WatchState) -> None:
        """Note that the server accepted a list or a watch."""
        self.contacted()
        if self.last_error is not None:
            self._log.info("Watch works again")
        self.state, self.last_error, self.is_refused = state, None, False

    def opened(self) -> None:
        """Note that each change is reported from now on, perhaps without a gap since the last watch."""
        self.accepted(WatchState.LIVE)
        if asyncio.get_running_loop().time() - self._ended_well > _HARMLESS_GAP:
            self._unbroken_periods += 1
        self.unbroken_period = self._unbroken_periods

    def closed(self, *, regularly: bool) -> None:
        """Note the end of a watch. `regularly`: at its timeout."""
        self.unbroken_period = None
        if regularly:
            self._ended_well = asyncio.get_running_loop().time()

    def complete(self) -> None:
        """Note that the consumer has all objects."""
        if self.unknown is not None:
            self.unknown = None
            self.known_again()

    def interrupted(self, error: Exception) -> None:
        """Note that objects may come and go unseen."""
        since = self.unknown.since if self.unknown is not None else time.time()
        self.unknown = Unknown(self._gvk, self.namespace, str(error), since)

    def failing(self, error: Exception, advice: Mapping[str, str]) -> None:
        """Note an error. It is logged when it is new, and periodically while it lasts."""
        self.state, self.last_error = WatchState.FAILING, str(error)
        now = asyncio.get_running_loop().time()
        text, logged_at = self._logged
        if self.last_error != text or now - logged_at >= self._repeat_log:
            self._logged = (self.last_error, now)
            self._log.warning("Watch failed; retrying", error=self.last_error, **advice)


def covering(healths: Sequence[WatchHealth], namespace: str) -> list[WatchHealth]:
    """Return the watches of a namespace; all if it is empty, none if no one watches it."""
    of_namespace = [health for health in healths if not namespace or health.namespace in {"", namespace}]
    return [healths[0] if health.is_redundant else health for health in of_namespace]


def problem_of(healths: Sequence[WatchHealth]) -> str | None:
    """Return why objects are not watched; None if they are, or if the kind is not served yet.

    A refusal counts for its namespace: it is a problem of all only if each namespace is refused.
    """
    failing = [health for health in healths if health.problem]
    serious = failing if len(failing) == len(healths) else [health for health in failing if not health.is_refused]
    return next((health.problem for health in serious), None)
