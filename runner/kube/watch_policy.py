"""How patient a watcher is. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """Seconds, unless it says otherwise."""

    idle_limit: float = 90.0
    """A watch without a byte for so long is dead: the server sends a bookmark about each minute."""
    list_idle_limit: float = 30.0
    """The same within a streamed list: a server that does not know streamed lists would stay silent."""
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    """The server is asked to end a watch after a time between these two."""
    settled: float = 1.0
    """The end of a watch that lasted for so long is nothing to wonder about."""
    first_backoff: float = 0.1
    longest_backoff: float = 10.0
    longest_retry_after: float = 60.0
    """The most that a server's `Retry-After` is obeyed."""
    first_kind_poll: float = 1.0
    longest_kind_poll: float = 5.0
    first_page: int = 50
    """Objects; few, since nobody knows yet how large they are."""
    longest_page: int = 500
    page_bytes: int = 1 << 19
    """Pages are as long as keeps them about this large."""
    slice: float = 0.005
    """The event loop is not held for longer."""
    repeat_log: float = 60.0
    """An error that stays is logged again after so long."""
