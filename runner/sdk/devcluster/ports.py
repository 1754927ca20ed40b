"""Reserved ports on the loopback interface.

Promises: a `ReservedPort` is reserved until it is closed, even while its server is stopped. A socket remains bound to
it without listening, so that clients get "connection refused", and the server shares the port by SO_REUSEPORT.

For servers that cannot share a port, `probe` returns one that is free now. If it is in use when the server starts, the
caller tries another one.

Ports are below the ephemeral ranges of operating systems, so that no outgoing connection uses one.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from runner.values.errors import ClusterError

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20_000, 29_999
_TRIES = 200


@dataclass(frozen=True, slots=True)
class ReservedPort:
    """A port number, and the socket that holds it."""

    number: int
    holder: socket.socket

    def close(self) -> None:
        """Release the port."""
        self.holder.close()


def candidates(dice: random.Random) -> Iterator[int]:
    """Yield random port numbers, so that concurrent processes seldom choose the same."""
    for _ in range(_TRIES):
        yield dice.randint(FIRST, LAST)


def reserve() -> ReservedPort:
    """Reserve a port for a server that sets SO_REUSEPORT."""
    for number in candidates(random.SystemRandom()):
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Bind exclusively, then share: two processes cannot both reserve the same number.
            holder.bind((LOOPBACK, number))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return ReservedPort(number, holder)
    raise ClusterError(
        f"no free port between {FIRST} and {LAST} on {LOOPBACK} after {_TRIES} attempts; "
        "stop programs that listen there, such as clusters listed by `ansible-operator cluster status`",
    )


def probe() -> int:
    """Return a port that is free now."""
    port = reserve()
    port.close()
    return port.number
