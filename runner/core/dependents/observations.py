"""Observations of one dependent: events, the read in progress, and writes of runs. Pure.

Versions of an object are compared for equality only, so the order of the observations is that of their arrival.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from runner.core.dependents.notification import RunWrite
from runner.core.kube.object_state import ObjectState

_MOST = 16
"""Writes of an object, and other observations of it, that are kept."""


class Source(Enum):
    """Source of an observation."""

    EVENT = "event"
    """Event of the watch whose content was not read yet. Its state is metadata only."""
    FORMER = "former event"
    """Event that is older than the known state. Its writer is unknown."""
    READ = "read"
    """Start of the read in progress, unless an event was newer. Its result is not older than the events before it."""
    WRITE = "write"
    """Write of a run whose event has not come yet. It has no state if the response contains only the version."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation."""

    version: str
    source: Source
    state: ObjectState | None
    write: RunWrite | None = None
    number: int = 0
    """Of a write: number of the list that was requested last."""


@dataclass(slots=True)
class Observed:
    """State of one object, and its observations."""

    scope: str
    seen: ObjectState | None = None
    """State that the owners know, of an event or a read."""
    log: tuple[Seen, ...] = ()
    """Former events, and the observations that the state does not explain yet, the oldest first."""

    def of(self, source: Source) -> list[Seen]:
        """Return the observations from a source."""
        return [item for item in self.log if item.source is source]

    @property
    def unread(self) -> ObjectState | None:
        """Metadata of the last event whose content was not read yet."""
        return next((item.state for item in reversed(self.of(Source.EVENT))), None)

    @property
    def former(self) -> set[str]:
        """Versions of the former events."""
        return {item.version for item in self.of(Source.FORMER)}

    @property
    def latest(self) -> ObjectState | None:
        """Latest written state, or else the known one."""
        return next((item.state for item in reversed(self.of(Source.WRITE)) if item.state is not None), self.seen)

    @property
    def last(self) -> ObjectState | None:
        """Known state, or else the latest written one."""
        return self.seen if self.seen is not None else self.latest

    def add(self, item: Seen) -> None:
        """Append an observation. The oldest one is dropped if there are too many of its kind."""
        self.log = (*self.log, item)
        alike = [other for other in self.log if (other.write is None) is (item.write is None)]
        self.drop(alike[:-_MOST])

    def drop(self, items: Collection[Seen]) -> None:
        """Remove observations."""
        self.log = tuple(item for item in self.log if item not in items)

    def outdate(self, end: int | None = None) -> None:
        """Note that the known state is newer than the events before this place of the log."""
        self.log = tuple(
            Seen(item.version, Source.FORMER, None)
            if item.source is Source.EVENT and (end is None or number < end)
            else item
            for number, item in enumerate(self.log)
        )
