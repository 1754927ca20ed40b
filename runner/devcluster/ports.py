"""Ports on the loopback interface that nobody takes in between.

Promises: a `ReservedPort` stays ours from the moment it is chosen until it is closed, also while the server that
listens on it is down: a socket of ours stays bound to it (without listening, so that clients see "connection refused"),
and the server shares the port with that socket by SO_REUSEPORT. For servers that cannot share, `probe` finds a port
that was free a moment ago; whoever uses it tries another one when the server says it is taken.

Ports come from below the ranges that operating systems give to outgoing connections, so that no client can happen to
sit on one, or connect to itself while the server is away.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from runner.errors import ClusterError

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20_000, 29_999
_TRIES = 200


@dataclass(frozen=True, slots=True)
class ReservedPort:
    """A port number, and the socket that holds it."""

    number: int
    holder: socket.socket

    def close(self) -> None:
        """Give the port back."""
        self.holder.close()


def candidates(dice: random.Random) -> Iterator[int]:
    """Port numbers in random order, so that several starters at once seldom choose the same."""
    for _ in range(_TRIES):
        yield dice.randint(FIRST, LAST)


def reserve() -> ReservedPort:
    """Reserve a port for a server that sets SO_REUSEPORT."""
    for number in candidates(random.SystemRandom()):
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Alone first, then shared: two starters that chose the same number cannot both get it.
            holder.bind((LOOPBACK, number))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return ReservedPort(number, holder)
    raise _none_free()


def probe() -> int:
    """Find a port that is free now."""
    for number in candidates(random.SystemRandom()):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
            try:
                attempt.bind((LOOPBACK, number))
            except OSError:
                continue
        return number
    raise _none_free()


def _none_free() -> ClusterError:
    return ClusterError(
        f"no free port between {FIRST} and {LAST} on {LOOPBACK} after {_TRIES} attempts; "
        "stop programs that listen there, such as clusters listed by `ansible-operator cluster status`",
    )
