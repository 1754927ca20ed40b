"""A follower of a watcher: what the watcher said, and what its cache made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from runner.core.kube.cache import Cache, Change
from runner.core.kube.watch import Watcher, WatchPolicy
from runner.core.kube.watch_events import Applied, Deleted, Requested, Restarted, Synced, WatchEvent
from runner.values.objects import key_of
from tests.kit.wait import until

QUICK = WatchPolicy(longest_backoff=1.0, first_kind_poll=0.2, longest_kind_poll=0.5)


def policy(**changes: Any) -> WatchPolicy:
    """A policy for tests: what takes seconds in life takes milliseconds here."""
    quick: dict[str, Any] = {
        "idle_limit": 5.0,
        "settled": 0.0,
        "first_backoff": 0.005,
        "longest_backoff": 0.02,
        "first_kind_poll": 0.005,
        "longest_kind_poll": 0.02,
        "first_page": 2,
    }
    return WatchPolicy(**{**quick, **changes})


class Follower:
    """Consumes a watcher as a controller does."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.cache = Cache()
        self.events: list[Restarted | Applied | Deleted | Synced] = []
        self.changes: list[Change] = []

    async def run(self) -> None:
        await self.watcher.follow(self._take)

    def _take(self, happened: WatchEvent) -> None:
        if not isinstance(happened, Requested):
            self.events.append(happened)
        self.changes += self.cache.apply(self.watcher.namespace, happened)

    def __str__(self) -> str:
        return " ".join(map(_word, self.events))

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.cache.keys())  # noqa: SIM118 - a cache is no mapping

    async def reaches(self, words: str) -> None:
        """Wait until all that was said so far is `words`: `[ +a ] -a` is a list of one object that then went."""
        await until(
            lambda: str(self) == words, lambda: f"{words!r}; saw {str(self)!r}; {self.watcher.health.last_error}"
        )

    async def passes(self, words: str) -> None:
        """Wait until what was said begins with `words`, which silence may have more follow by now."""
        await until(
            lambda: str(self).startswith(words),
            lambda: f"{words!r} first; {self._saw()}",
        )

    def _saw(self) -> str:
        return f"saw {str(self)!r}; {self.watcher.health.last_error}"

    async def holds(self, *names: str) -> None:
        await until(lambda: self.names == sorted(names), lambda: f"{names}; holds {self.names}")


@asynccontextmanager
async def following(watcher: Watcher) -> AsyncIterator[Follower]:
    """Follow a kind for as long as a block lasts."""
    follower = Follower(watcher)
    task = asyncio.create_task(follower.run())
    try:
        yield follower
        assert not task.done(), "the watcher ended"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def names_of_list(watcher: Watcher) -> list[str]:
    """Follow until a list is complete; return the names of its events."""
    names: list[str] = []
    task = asyncio.create_task(watcher.follow(lambda happened: names.append(type(happened).__name__)))
    await until(lambda: "Synced" in names)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return names


def _word(happened: Restarted | Applied | Deleted | Synced) -> str:
    match happened:
        case Restarted():
            return "["
        case Synced():
            return "]"
        case Applied(obj):
            return f"+{key_of(obj).name}"
        case Deleted(obj):
            return f"-{key_of(obj).name}"


Follow: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
