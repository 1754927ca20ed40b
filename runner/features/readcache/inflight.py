"""Calls of the proxy that are in progress, and whether their responses can be trusted. Pure.

If two calls for an object overlap, their order on the server is unknown. So the end of each call marks all
further calls in progress in the same scope. Their responses may be older than a state that was returned or written
meanwhile. Must not import: the client, the proxy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from runner.values.objects import ObjectKey


class CallScope(NamedTuple):
    """An object in any API version. Without a name it is a namespace; without both it is the whole kind."""

    group: str
    plural: str
    namespace: str
    name: str

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return ObjectKey(self.namespace, self.name)

    def with_containing(self) -> tuple[CallScope, ...]:
        """Return the scope and the scopes that contain it."""
        return self, self._replace(name=""), self._replace(namespace="", name="")


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call in progress."""

    place: CallScope
    basis: object
    """Value to compare when the call ends; None if its response cannot be cached."""
    holds: bool = False
    """True if nothing in its scope may be served from the cache."""
    is_spoiled: bool = False
    """True if another call ended meanwhile, so that the response may be outdated."""
    is_left: bool = False
    """True if it ends later than its call, because the call had an unknown outcome."""
    is_ended: bool = False


class PendingCalls:
    """All calls in progress."""

    def __init__(self) -> None:
        self._attempts: dict[CallScope, list[PendingCall]] = {}
        self._held: Counter[CallScope] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._attempts.values()))

    def begin(self, place: CallScope, basis: object) -> PendingCall:
        """Register a call."""
        attempt = PendingCall(place, basis)
        self._attempts.setdefault(place, []).append(attempt)
        return attempt

    def hold(self, attempt: PendingCall) -> None:
        """Serve nothing in the call's scope from the cache until it ends."""
        if not attempt.holds:
            attempt.holds = True
            self._held[attempt.place] += 1

    def end(self, attempt: PendingCall) -> None:
        """Remove a call."""
        attempt.is_ended = True
        attempts = self._attempts[attempt.place]
        attempts.remove(attempt)
        if not attempts:
            del self._attempts[attempt.place]
        if attempt.holds:
            self._held[attempt.place] -= 1
            if not self._held[attempt.place]:
                del self._held[attempt.place]

    def is_held(self, place: CallScope) -> bool:
        """Return True if a call in progress prevents a response from the cache."""
        return bool(self._held) and any(scope in self._held for scope in place.with_containing())

    def spoil(self, place: CallScope) -> None:
        """Mark the calls in a scope: another one has ended."""
        for scope in place.with_containing():
            for attempt in self._attempts.get(scope, ()):
                attempt.is_spoiled = True
