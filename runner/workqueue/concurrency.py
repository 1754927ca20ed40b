"""How many runs go on at once, of one kind and of all kinds together, and which of what waits starts next.

A part of the workers is kept for what people do: background work never takes it, so that a change starts at once
whatever else is due. A single worker cannot be parted; there, and wherever all are taken, of two starts in a row at
most one is background work's while somebody's change waits. Neither can so starve the other.

Guarantees: what starts next is the most urgent of all kinds that may start, by rank. A kind that has no run going on
may always start one, whatever the others do, since runs of one kind may wait for objects of another. Pure, but that
`dispatch` hands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

_KEPT = 4
"""One of so many workers is kept for what people do, and at least one where there are two."""


@dataclass(slots=True)
class Share:
    """A number of workers, and what of it background work may take."""

    most: int
    background: int
    active: int = 0
    active_background: int = 0
    _after_background: bool = False

    @classmethod
    def of(cls, workers: int) -> Share:
        """Part `workers`, at least one."""
        kept = max(workers // _KEPT, 1) if workers > 1 else 0
        return cls(workers, workers - kept)

    def admits(self, *, background: bool, somebody_waits: bool) -> bool:
        """Whether one more may start. `somebody_waits`: a change that could start as well does."""
        if self.active >= self.most:
            return False
        if not background:
            return True
        return self.active_background < self.background and not (somebody_waits and self._after_background)

    def took(self, *, background: bool) -> None:
        """One has started."""
        self.active += 1
        self.active_background += background
        self._after_background = background

    def gave_back(self, *, background: bool) -> None:
        """One has ended."""
        self.active -= 1
        self.active_background -= background


class Line(Protocol):
    """Where requests of one kind wait, with workers that wait for them."""

    @property
    def active(self) -> int:
        """Requests that workers hold."""
        ...

    def offers(self) -> Iterator[Offer]:
        """What could start now, as far as the kind is concerned: at most a change and a background request."""
        ...

    def hand_out(self, offer: Offer) -> None:
        """Give what was offered to a worker."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A request that could start."""

    line: Line
    rank: float
    """The lower, the more urgent."""
    background: bool


@dataclass(slots=True)
class Slots:
    """What all kinds share."""

    share: Share
    _lines: list[Line] = field(default_factory=list)

    def join(self, line: Line) -> None:
        """Serve one more kind."""
        self._lines.append(line)

    def dispatch(self) -> None:
        """Hand out all that may start now, the most urgent first."""
        while (found := self._next()) is not None:
            self.share.took(background=found.background)
            found.line.hand_out(found)

    def gave_back(self, *, background: bool) -> None:
        """A request is done; `dispatch` comes next."""
        self.share.gave_back(background=background)

    def _next(self) -> Offer | None:
        offers = [offer for line in self._lines for offer in line.offers()]
        somebody_waits = any(not offer.background for offer in offers)
        startable = (
            offer
            for offer in offers
            if not offer.line.active or self.share.admits(background=offer.background, somebody_waits=somebody_waits)
        )
        return min(startable, key=lambda offer: offer.rank, default=None)
