"""Identities of active runs: each run has a random token, which is revoked when the run ends.

Owns: the tokens of active runs, and the statistics of each run's requests. Only a digest of each token is stored, so
that no memory dump, log or `repr` contains a token. Revoking a token closes the run's connections.

Must not import: anything that talks to a cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from runner.core.engine.run_secrets import RunSecrets
from runner.core.kube import rights
from runner.core.kube.discovery import ApiResource
from runner.core.kube.rights import Right
from runner.values.objects import Object, ObjectKey, Owner, OwnerState
from runner.values.slots import EMPTY, Slots

_MOST_RIGHTS = 20
"""Missing rights that are recorded for each run."""


@dataclass(slots=True)
class RunStats:
    """Statistics of a run's requests, and the reasons for rejected ones."""

    calls: int = 0
    seconds: float = 0.0
    """Duration of all requests, without watches and other endless ones."""
    hits: int = 0
    """GET requests for owned objects that the cache answered."""
    misses: int = 0
    """GET requests for owned objects that the API server answered."""
    missing: set[Right] = field(default_factory=set)
    """The first rights that the run lacked."""
    absent_user: str | None = None
    """User name of the run's service account if it does not exist; empty if it can exist, None before the question."""
    terminating: set[str] = field(default_factory=set)
    """Namespaces that are being deleted, in which the run could not create an object."""
    on_terminating: Callable[[], None] = lambda: None
    """Called whenever the run meets such a namespace."""

    def add(self, seconds: float, *, endless: bool) -> None:
        """Count one request."""
        self.calls += 1
        if not endless:
            self.seconds += seconds

    def read(self, *, hit: bool) -> None:
        """Count one GET request for an owned object."""
        self.hits += hit
        self.misses += not hit

    def lacks(self, right: Right) -> None:
        """Record a missing right."""
        if len(self.missing) < _MOST_RIGHTS:
            self.missing.add(right)

    def terminates(self, namespace: str) -> None:
        """Record a namespace in which no object can be created, because it is being deleted."""
        self.terminating.add(namespace)
        self.on_terminating()

    def forbidden(self) -> tuple[str, ...]:
        """Return a sentence with the RBAC rule to add for each missing right; equal rights give equal sentences."""
        return rights.sentences(self.missing, self.absent_user or "")


async def _exists() -> OwnerState:
    return OwnerState.EXISTS


async def _unknown() -> bool | None:
    return None


class ObjectView(Protocol):
    """Objects as a trial sees them: those that it would have written, and in all other places those of the cluster."""

    def replaces(self, resource: ApiResource, key: ObjectKey) -> bool:
        """Return whether the object of the cluster, if there is one, is not what the trial sees."""
        ...

    def object(self, resource: ApiResource, key: ObjectKey) -> Object | None:
        """Return what the trial sees in its place; None: no object."""
        ...


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """A run and the options of its requests."""

    ident: str
    """The job's ident, for the log."""
    owner: Owner
    inject: bool
    """True if the proxy adds an owner to objects that the run creates."""
    watch_dependents: bool
    """True if observers are notified of objects that the run reads and writes."""
    service_account: str
    """The impersonated service account, `namespace/name`; empty: none. Only the API server may answer such a run: what
    the operator has read can be more than the account may read."""
    account_exists: Callable[[], Awaitable[bool | None]] = field(default=_unknown, compare=False, repr=False)
    """Return whether that account exists; None if it is unknown."""
    own_namespace_only: bool = False
    """True if the proxy refuses requests outside of the namespace of the run's object."""
    owner_annotations: bool = True
    """False if the proxy removes annotations about owners from the objects that the run writes."""
    may_write: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)
    """Return whether this replica still owns the object; called immediately before each write is sent."""
    owner_state: Callable[[], Awaitable[OwnerState]] = field(default=_exists, compare=False, repr=False)
    """Return the state of the run's object; called before writes."""
    stats: RunStats = field(default_factory=RunStats, compare=False)
    secrets: RunSecrets = field(default_factory=RunSecrets, compare=False, repr=False)
    """Secret values of the run; grows as the run reads and writes Secrets."""
    view: ObjectView | None = field(default=None, compare=False, repr=False)
    """What the run sees in place of the cluster, if it is a trial: it writes nothing. None for all other runs."""
    is_bound: bool = False
    """True if the run may send only writes that were decided before, and must read the newest objects."""
    more: Slots = field(default=EMPTY, compare=False, repr=False)
    """Parts of features, those of the attempt."""


class Closeable(Protocol):
    """A connection that can be closed."""

    def abort(self) -> None:
        """Close at once."""
        ...


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ActiveRun:
    """An active run and its connections."""

    run: RunIdentity
    connections: WeakSet[Closeable] = field(default_factory=WeakSet)
    """Open connections, also idle ones."""
    large: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the call with large content."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """Called when the run has ended."""


class Identities:
    """Active runs by token."""

    def __init__(self) -> None:
        self._active: dict[bytes, ActiveRun] = {}

    def issue(self, run: RunIdentity, token: str = "") -> str:
        """Create the token of a run, or accept the one that an earlier operator created for it."""
        token = token or secrets.token_urlsafe(32)
        self._active[_digest(token)] = ActiveRun(run)
        return token

    def revoke(self, token: str) -> None:
        """Revoke a run's token and close its connections. Revoking it twice has no effect."""
        self.cut(token)
        active = self._active.pop(_digest(token), None)
        for ended in active.at_end if active is not None else ():
            ended()

    def cut(self, token: str) -> None:
        """Close the connections of a token. New ones are accepted."""
        active = self._active.get(_digest(token))
        for connection in list(active.connections) if active else ():
            connection.abort()

    def issued(self, token: str) -> ActiveRun:
        """Return the active run of a token that was issued, and not revoked. Raises KeyError."""
        return self._active[_digest(token)]

    def active(self, token: str) -> ActiveRun | None:
        """Return the active run of a token, None if it is unknown or revoked."""
        return self._active.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).digest()
