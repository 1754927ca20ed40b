"""Calls of the proxy that are on their way: what they are about, and whether their answer can be trusted. Pure.

Of two calls about an object that overlap, nobody can say which was served first. So the end of each spoils the others
about the same place: what they bring may be older than what was shown or written meanwhile. Must not import: the
client, the proxy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from runner.objects import ObjectKey


class CallScope(NamedTuple):
    """An object, in whatever version of the API; without a name all of a namespace, without both all of a kind."""

    group: str
    plural: str
    namespace: str
    name: str

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return ObjectKey(self.namespace, self.name)

    def around(self) -> tuple[CallScope, ...]:
        """It and all that holds it."""
        return self, self._replace(name=""), self._replace(namespace="", name="")


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call on its way."""

    place: CallScope
    basis: object
    """What its answer would be judged by when it began; None: it cannot be judged."""
    holds: bool
    """Whether nothing of its place is answered from memory meanwhile."""
    is_spoiled: bool = False
    """Whether something has ended meanwhile after which its answer may be an old one."""


class PendingCalls:
    """All of them."""

    def __init__(self) -> None:
        self._attempts: dict[CallScope, list[PendingCall]] = {}
        self._held: Counter[CallScope] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._attempts.values()))

    def begin(self, place: CallScope, basis: object) -> PendingCall:
        """A call begins."""
        attempt = PendingCall(place, basis, holds=False)
        self._attempts.setdefault(place, []).append(attempt)
        return attempt

    def hold(self, attempt: PendingCall) -> None:
        """From now on nothing of its place is answered from memory until it ends."""
        if not attempt.holds:
            attempt.holds = True
            self._held[attempt.place] += 1

    def end(self, attempt: PendingCall) -> None:
        """It is over."""
        attempts = self._attempts[attempt.place]
        attempts.remove(attempt)
        if not attempts:
            del self._attempts[attempt.place]
        if attempt.holds:
            self._held[attempt.place] -= 1
            if not self._held[attempt.place]:
                del self._held[attempt.place]

    def is_held(self, place: CallScope) -> bool:
        """Whether something on its way keeps an object from being answered from memory."""
        return bool(self._held) and any(each in self._held for each in place.around())

    def spoil(self, place: CallScope) -> None:
        """Something about an object has ended."""
        for each in place.around():
            for attempt in self._attempts.get(each, ()):
                attempt.is_spoiled = True
