"""Whose request it is: each run has a token that nobody can guess and that ends with the run.

Owns: the tokens of the runs that go on, and what each run has asked so far. A token is kept as its digest only, so that
no dump of memory, log or `repr` shows one. Ending a run ends its open connections too.

Must not import: anything that talks to a cluster.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from runner.engine.run_secrets import RunSecrets
from runner.kube import forbidden
from runner.kube.forbidden import MissingRight
from runner.objects import GVK
from runner.ownership import Owner
from runner.unchanged.last_run import ReadSet

_MOST_RIGHTS = 20
"""Missing rights that are kept of a run."""


@dataclass(slots=True)
class RunStats:
    """What a run has asked of the API server, and what it was refused."""

    calls: int = 0
    seconds: float = 0.0
    """Time that calls took, watches and other endless ones left out."""
    hits: int = 0
    """GETs of owned objects that were answered from memory."""
    misses: int = 0
    """GETs of owned objects that the API server answered."""
    missing: set[MissingRight] = field(default_factory=set)
    """Rights for want of which calls were refused, the first of them."""
    terminating: set[str] = field(default_factory=set)
    """Namespaces in which nothing could be created any more."""
    on_terminating: Callable[[], None] = lambda: None
    """Called whenever the run meets such a namespace."""

    def add(self, seconds: float, *, endless: bool) -> None:
        """Count one call."""
        self.calls += 1
        if not endless:
            self.seconds += seconds

    def read(self, *, hit: bool) -> None:
        """Count one GET of an owned object."""
        self.hits += hit
        self.misses += not hit

    def lacks(self, right: MissingRight) -> None:
        """Note a right that a call needed."""
        if len(self.missing) < _MOST_RIGHTS:
            self.missing.add(right)

    def terminates(self, namespace: str) -> None:
        """Note that something could not be created, since its namespace is being deleted."""
        self.terminating.add(namespace)
        self.on_terminating()

    def forbidden(self) -> tuple[str, ...]:
        """Say of each thing that was refused which rule to add; the same rights make the same sentences."""
        return forbidden.sentences(self.missing)


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One run and what the proxy does for it."""

    ident: str
    """The job's ident, for the log."""
    owner: Owner
    inject: bool
    """Whether what the run creates gets an owner."""
    watch_dependents: bool
    """Whether what it reads and writes is told, be it for the sake of its references alone."""
    watch_cluster_scoped: bool
    blacklist: frozenset[GVK]
    in_finalizer: bool
    service_account: str
    """The service account as which its calls are made, `namespace/name`; empty: the operator itself. What the operator
    may read is not for such a run: it gets no cached answers."""
    may_write: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)
    """Whether the object is this replica's, at this moment; asked when a write is about to leave."""
    stats: RunStats = field(default_factory=RunStats, compare=False)
    read_set: ReadSet | None = field(default=None, compare=False, repr=False)
    """What it sees, where that matters for later."""
    secrets: RunSecrets = field(default_factory=RunSecrets, compare=False, repr=False)
    """What of it must not be shown; grows as the run reads and writes Secrets."""


@dataclass(slots=True)
class DiscoveryRequests:
    """Discovery requests of a run."""

    requested: dict[tuple[str, bytes, bytes], float] = field(default_factory=dict)
    """Time of the last request for each document, by target, `Accept` and `Accept-Encoding`."""
    bypasses_cache: bool = False
    """Set when the run reads or writes CRDs or APIServices."""


class Closeable(Protocol):
    """A connection, as far as the end of a run concerns it."""

    def abort(self) -> None:
        """Close at once."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """A run that goes on, and the connections that came with its token."""

    run: RunIdentity
    connections: set[Closeable] = field(default_factory=set)
    discovered: DiscoveryRequests = field(default_factory=DiscoveryRequests)


class Identities:
    """The runs that go on."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}

    def issue(self, run: RunIdentity) -> str:
        """Make the token of a run."""
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = Session(run)
        return token

    def revoke(self, token: str) -> None:
        """End a run's token, and the connections that are still open with it. Revoking twice is fine."""
        self.cut(token)
        self._sessions.pop(_digest(token), None)

    def cut(self, token: str) -> None:
        """End the connections that are open with a token. New ones are let in."""
        session = self._sessions.get(_digest(token))
        for connection in list(session.connections) if session else ():
            connection.abort()

    def find(self, token: str) -> RunIdentity | None:
        """Say whose token this is."""
        session = self.session(token)
        return session.run if session else None

    def session(self, token: str) -> Session | None:
        """Return the run's session, None for a token that is unknown or ended."""
        return self._sessions.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).digest()
