"""Watcher of one kind in one namespace or in all.

Flow: each step finds out how the kind is served, and then lists or watches from a position (see `watch_events`).
`connecting`: no request was accepted yet. `listing` reports `Requested` before its request, and then a complete list
between `Restarted` and `Synced`. `live` reports each change. `waiting for kind`: the API server does not serve the
kind. `failing`: the last attempt failed with `last_error`; the next one follows automatically.

Guarantees: `follow` never ends and does not raise errors of the API. A watch that ends is resumed without a list while
the server supports its resource version. After a 410 a new list follows, in which unchanged objects have their earlier
resourceVersion. A list is processed by object or by page, never held whole. The event loop is yielded every few
milliseconds. A kind that is no longer served yields nothing: its objects are `unknown` until it is listed again.

Assumes: one consumer. Caveats: deletions during a gap are detected by absence (the cache finds them); the objects of a
list have no order.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ ("Efficient detection of changes"). Must not
import: cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import orjson

from runner.base import log
from runner.core.kube import answers, decode
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.watch_events import (
    Applied,
    Deleted,
    From,
    Next,
    Page,
    Position,
    Relist,
    Requested,
    Restarted,
    ServerTraits,
    Start,
    StepEnd,
    Synced,
    Take,
    WatchEvent,
    next_step,
)
from runner.core.kube.watch_health import WatchHealth, WatchState
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, key_of, version_of

_EARLY = 2.0
"""Seconds before its timeout at which a watch may end and still end regularly."""


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """Timing of a watch, in seconds by default."""

    idle_limit: float = 90.0
    """A watch without a byte for this long is dead: the server sends a bookmark about every minute."""
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    """The timeout of a watch is between these two."""
    settled: float = 1.0
    """A watch that lasted for this long may end without an error."""
    first_backoff: float = 0.1
    longest_backoff: float = 10.0
    first_kind_poll: float = 1.0
    longest_kind_poll: float = 5.0
    first_page: int = 50
    """Objects; few, because their size is unknown."""
    longest_page: int = 500
    page_bytes: int = 1 << 19
    """Approximate size of a page."""
    slice: float = 0.005
    """Maximum time without yielding the event loop."""
    repeat_log: float = 60.0
    """Interval of the log for an error that lasts."""


DEFAULT_POLICY = WatchPolicy()


class Pacer:
    """Yields the event loop after `slice_` seconds of work."""

    def __init__(self, slice_: float) -> None:
        self._slice = slice_
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + slice_

    async def breathe(self) -> None:
        """Yield the event loop if it is due."""
        if self._time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._time() + self._slice


class WatchStream:
    """A watch request from start to end, as typed events. Read it once.

    Promises: an ERROR event ends it with its ApiError. A watch that is silent, breaks or is closed at once ends with
    ApiUnavailableError. One that the server ends at its timeout ends without an error.
    """

    def __init__(
        self, client: Client, path: str, selection: Selection, policy: WatchPolicy, health: WatchHealth, version: str
    ) -> None:
        """`version` is the resourceVersion to watch from."""
        self.settled = False
        """True if the watch lasted longer than a moment; set at its end."""
        self._version = version
        """Version until which all changes were reported."""
        self._has_bookmarks = False
        self._is_silent = True
        self._client = client
        self._path = path
        self._selection = selection
        self._policy = policy
        self._health = health

    async def read(self, take: Take) -> StepEnd:
        """Pass the events to `take` until the server ends the watch; return the end."""
        request, policy = f"watch of {self._path}", self._policy
        time, pacer = asyncio.get_running_loop().time, Pacer(policy.slice)
        timeout = int(random.uniform(policy.shortest_watch, policy.longest_watch))  # noqa: S311 - spreads load
        opening = self._client.stream(
            self._path, self._params(timeout), idle=policy.idle_limit, metadata_only=self._selection.metadata_only
        )
        error: ApiError | ApiUnavailableError | None = None
        was_open = False
        try:
            async with opening as lines:
                was_open, began, regularly = True, time(), False
                self._health.opened()
                self._health.complete()
                try:
                    async for line in lines:
                        self._process(*_decode(line, request), request, take)
                        await pacer.breathe()
                    regularly = time() - began >= max(policy.settled, timeout - _EARLY)
                finally:
                    self.settled = time() - began >= policy.settled
                    self._health.closed(regularly=regularly)
            if not self.settled:
                error = ApiUnavailableError(f"{request}: the server closed it immediately")
        except (ApiError, ApiUnavailableError) as caught:
            error = caught
        # Not measured: the limit counts from the last byte, which a busy event loop reads later.
        was_silent = was_open and self._is_silent and isinstance(getattr(error, "__cause__", None), TimeoutError)
        position = From(self._path, self._version) if self._version else Start()
        return StepEnd(
            *(position, error), was_accepted=was_open, was_silent=was_silent, has_bookmarks=self._has_bookmarks
        )

    def _params(self, timeout: int) -> dict[str, str]:
        return {
            "resourceVersion": self._version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout),
            **self._selection.params,
        }

    def _process(self, kind: str, obj: Object, request: str, take: Take) -> None:
        """Pass an event to `take`, and note how far the watch has got. Raises ApiError for an ERROR event."""
        if kind == "ERROR":
            raise answers.of_status(request, obj)
        self._health.contacted()
        self._is_silent = False
        if kind == "BOOKMARK":
            self._has_bookmarks = True
        else:
            take(Deleted(obj) if kind == "DELETED" else Applied(obj))
        self._version = version_of(obj)


def _decode(line: bytes, request: str) -> tuple[str, Object]:
    with contextlib.suppress(orjson.JSONDecodeError):
        match decode.loads(line):
            case {"type": str(kind), "object": dict(obj)}:
                return kind, obj
    raise ApiUnavailableError(
        f"{request}: {line[:100]!r} is not a watch event; check for a proxy in front of the API server"
    )


_BAD_REQUEST = 400


class Watcher:
    """Watcher of one kind in one namespace (`""`: all)."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        gvk: GVK,
        namespace: str,
        selection: Selection,
        policy: WatchPolicy = DEFAULT_POLICY,
        *,
        takes_cluster_scope: bool = True,
    ) -> None:
        """`takes_cluster_scope`: see `watchers`."""
        self.gvk = gvk
        self.namespace = namespace
        self._log = log.get(__name__, gvk=str(gvk), scope=namespace or "all namespaces")
        self.health = WatchHealth(gvk, namespace, self._log, policy.repeat_log)
        self._client = client
        self._discovery = discovery
        self._selection = selection
        self._policy = policy
        self._takes_cluster_scope = takes_cluster_scope
        self._server = ServerTraits()
        self._backoff = JitteredBackoff(policy.first_backoff, policy.longest_backoff)
        self._kind_poll = JitteredBackoff(policy.first_kind_poll, policy.longest_kind_poll)

    async def follow(self, take: Take) -> NoReturn:
        """Pass the events to `take` until cancelled."""
        position: Position = Start()  # an earlier consumer may have lost an event
        while True:
            end = await self._step(position, take)
            self._server = self._server.after(end)
            action, position = next_step(end, self._server)
            delay = 0.0 if end.error is None else self._failed(action, end.error)
            await asyncio.sleep(delay)

    async def _step(self, position: Position, take: Take) -> StepEnd:
        """List or watch from a position, until the API server ends it or an error occurs."""
        try:
            resource = await self._discovery.find(self.gvk)
        except (ApiError, ApiUnavailableError) as error:
            return StepEnd(position, error, in_discovery=True)
        self._kind_poll.reset()
        self.health.served()
        if not resource.namespaced and not self._takes_cluster_scope:
            return await self._wait_for_other_watcher(take)
        self.health.is_redundant = False
        path = resource.path(self.namespace)
        match position:
            case From() if position.path == path:
                return await self._watch(path, position.version, take)
            case Page() if position.path == path:
                return await self._page(resource, position, take)
        take(Requested())
        return await self._page(resource, Page(path, "", self._policy.first_page), take)

    async def _wait_for_other_watcher(self, take: Take) -> StepEnd:
        """Wait while another watcher covers the kind, which is cluster-scoped."""
        self.health.accepted(WatchState.LIVE)
        if not self.health.is_redundant:
            self.health.is_redundant = True
            self.health.is_listed = True
            for event in (Requested(), Restarted(self.namespace), Synced()):
                take(event)
        self.health.complete()
        await asyncio.sleep(self._policy.longest_kind_poll)
        return StepEnd(Start(), was_accepted=True)

    async def _page(self, resource: ApiResource, page: Page, take: Take) -> StepEnd:
        """Read a page of a list; the watch that follows the last page is a separate step."""
        policy, pacer = self._policy, Pacer(self._policy.slice)
        try:
            answer = await self._client.list_page(resource, self.namespace, self._selection, page.limit, page.token)
        except (ApiError, ApiUnavailableError) as error:
            return StepEnd(page, error)
        self.health.contacted()
        if not page.token:
            self.health.accepted(WatchState.LISTING)
            take(Restarted(self.namespace))
        limit = page.limit
        if answer.items:
            limit = max(1, min(policy.longest_page, policy.page_bytes * len(answer.items) // answer.size))
        answer.items.reverse()  # each object is freed once it was taken, in the order of the list
        while answer.items:
            take(Applied(answer.items.pop()))
            await pacer.breathe()
        if answer.cont:
            return StepEnd(Page(page.path, answer.cont, limit), was_accepted=True)
        self.health.is_listed = True
        take(Synced())
        self.health.complete()
        # Kubernetes lists have a version. If one has none, "0" starts the watch from any version.
        return StepEnd(From(page.path, answer.resource_version or "0"), was_accepted=True)

    async def _watch(self, path: str, version: str, take: Take) -> StepEnd:
        """Watch from a version."""
        stream = WatchStream(self._client, path, self._selection, self._policy, self.health, version)
        end = await stream.read(take)
        if end.error is None:
            # The server ends a kind's watches when its CRD changes too; perhaps it got a status subresource.
            self._discovery.forget(self.gvk)
        if stream.settled:
            # Not sooner: a server may open every watch and close it at once.
            self._backoff.reset()
        return end

    def _failed(self, action: Next, error: ApiError | ApiUnavailableError) -> float:
        """Report an error; return the seconds until the next step."""
        if action is Next.CONTINUE:
            return 0.0
        self.health.interrupted(error)
        if action is Next.WAIT_FOR_KIND:
            self.health.absent(error)
            return self._kind_poll.next()
        delay, self.health.is_refused = self._backoff.next(), isinstance(error, ForbiddenError)
        if isinstance(error, NotFoundError | KindNotFoundError):
            self._discovery.forget(self.gvk)
        if action is Next.RELIST:
            self._log.info("The watch cannot resume; listing again", error=str(error))
        elif action is Next.RETRY:
            self.health.failing(error, self._advice(error))
            if isinstance(error, ApiError) and error.retry_after is not None:
                delay = max(delay, error.retry_after)
        return delay

    def _advice(self, error: Exception) -> dict[str, str]:
        """Return the remedy as fields of the log."""
        if isinstance(error, ForbiddenError):
            return {"needs": "verbs get, list and watch on this kind"}
        if self._selection.fields and isinstance(error, ApiError) and error.status == _BAD_REQUEST:
            known = "metadata.name, metadata.namespace and the selectableFields of the kind's CRD"
            return {"needs": f"a field selector with fields that this kind supports: {known}"}
        return {}


def watchers(
    client: Client, discovery: Discovery, gvk: GVK, namespaces: Sequence[str], selection: Selection
) -> tuple[Watcher, ...]:
    """Create a watcher per namespace. The first covers the whole kind if it is cluster-scoped.

    Without namespaces, one watcher covers all.
    """
    return tuple(
        Watcher(client, discovery, gvk, namespace, selection, takes_cluster_scope=number == 0)
        for number, namespace in enumerate(namespaces or ("",))
    )


class ObjectWatch:
    """The objects that one watcher reports.

    Guarantees: `saw` receives every object of an event, and the absence of each expected object that a list did not
    contain.
    """

    def __init__(
        self,
        watcher: Watcher,
        expected: Callable[[], Iterable[ObjectKey]],
        saw: Callable[[ObjectKey, Object | None], None],
        synced: Callable[[], None] = lambda: None,
    ) -> None:
        """`expected` returns the objects that a list may contain; `saw` receives an object, or None if it is absent.

        `synced` is called when a list is complete for the first time.
        """
        self.health = watcher.health
        self._watcher = watcher
        self._expected = expected
        self._saw = saw
        self._synced = synced
        self.is_synced = False
        """True if a list was ever complete."""
        self._relist = Relist()

    async def follow(self) -> NoReturn:
        """Watch until cancelled."""
        await self._watcher.follow(self._take)

    def _take(self, event: WatchEvent) -> None:
        scope = self.health.namespace
        match event:
            case Restarted():
                self._relist.begin(scope, self._expected())
            case Applied(obj):
                self._relist.saw(key_of(obj))
                self._saw(key_of(obj), obj)
            case Deleted(obj):
                self._saw(key_of(obj), None)
            case Synced():
                for key in self._relist.end(scope):
                    self._saw(key, None)
                if not self.is_synced:
                    self.is_synced = True
                    self._synced()
