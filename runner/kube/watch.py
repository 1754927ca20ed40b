"""Watcher of one kind in one namespace or in all.

Flow: `connecting` finds out how the kind is served and opens a watch. `listing` yields `Requested` before its
request, and then a complete list between `Restarted` and `Synced`. `live` yields each change. `waiting for kind`: the
API server does not serve the kind. `failing`: the last attempt failed with `last_error`; the next one follows
automatically.

Guarantees: `events` never ends and does not raise errors of the API. A watch that ends is resumed without a list while
the server supports its resource version. After a 410 a new list follows, in which unchanged objects have their earlier
resourceVersion. A list is processed by object or by page, never held whole. The event loop is yielded every few
milliseconds. A kind that is no longer served yields nothing: its objects are `unknown` until it is listed again.

Assumes: one consumer. Caveats: deletions during a gap are detected by absence (the cache finds them); the objects of a
list have no order.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ ("Efficient detection of changes", "Streaming
lists"). Must not import: cache.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from enum import StrEnum
from functools import partial

from runner import log
from runner.errors import (
    ApiError,
    ApiUnavailableError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KindNotFoundError,
    NotFoundError,
)
from runner.kube.client import Client, Selection
from runner.kube.discovery import ApiResource, Discovery
from runner.kube.presence import Unknown
from runner.kube.watch_events import Applied, Deleted, Requested, Restarted, Synced, WatchEvent
from runner.kube.watch_stream import Pacer, WatchPolicy, WatchStream
from runner.objects import GVK, annotations_of, metadata
from runner.watches.policy import JitteredBackoff

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BAD_REQUEST = 400
_ENOUGH_BROKEN_LISTS = 2
_ENOUGH_NOT_FOUND = 3
_HARMLESS_GAP = 1.0
"""Seconds between two watches that do not count as a gap if the first one ended regularly."""
_EARLY = 2.0
"""Seconds before its timeout at which a watch may end and still end regularly."""


class WatchState(StrEnum):
    """State of a watcher."""

    CONNECTING = "connecting"
    LISTING = "listing"
    LIVE = "live"
    WAITING_FOR_KIND = "waiting for kind"
    FAILING = "failing"


class Watcher:
    """Watcher of one kind in one namespace (`""`: all)."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        gvk: GVK,
        namespace: str,
        selection: Selection,
        policy: WatchPolicy,
        *,
        takes_cluster_scope: bool = True,
    ) -> None:
        """`takes_cluster_scope`: see `watchers`."""
        self.gvk = gvk
        self.namespace = namespace
        self.state = WatchState.CONNECTING
        self.last_contact: float | None = None
        """Time of the last contact with the server, by the event loop's clock."""
        self.last_error: str | None = None
        """Current error; None if there is none."""
        self.unbroken_period: int | None = None
        """Number of the current period without a gap in the changes; None if there is none.

        A watch that the server ends regularly and that is reopened at once makes no gap.
        """
        self.unknown: Unknown | None = Unknown(gvk, namespace, "they were not listed yet", time.time())
        """Why it is unknown which objects exist; None while it is known."""
        self.known_again: Callable[[], None] = lambda: None
        """Called when it becomes known which objects exist."""
        self._client = client
        self._discovery = discovery
        self._selection = selection
        self._policy = policy
        self._takes_cluster_scope = takes_cluster_scope
        self.is_redundant = False
        """Whether another watcher covers the kind, which is cluster-scoped."""
        self.is_refused = False
        """Whether the API server refuses the watch now."""
        self._path = ""
        self._resume_from = ""
        """resourceVersion to resume from; empty if a list is needed."""
        self._streams_lists = True
        self._broken_lists = 0
        self._gets_bookmarks = False
        self._backoff = JitteredBackoff(policy.first_backoff, policy.longest_backoff)
        self._kind_poll = JitteredBackoff(policy.first_kind_poll, policy.longest_kind_poll)
        self._absences = 0
        self._not_found = 0
        self._logged: tuple[str, float] = ("", 0.0)
        self._unbroken_periods = 0
        self._timeout = 0
        """Timeout in seconds that the current watch requested."""
        self._ended_well = -math.inf
        """Time of the last regular end."""
        self._log = log.get(__name__, gvk=str(gvk), scope=namespace or "all namespaces")

    async def events(self) -> AsyncGenerator[WatchEvent]:
        """Yield events until cancelled."""
        self._resume_from = ""  # the last consumer may have lost an event
        while True:
            delay, resource = 0.0, None
            try:
                resource = await self._find()
                async with aclosing(self._follow(resource)) as events:
                    async for event in events:
                        yield event
            except (ApiError, ApiUnavailableError) as error:
                is_unserved = resource is None and isinstance(error, KindNotFoundError)
                delay = self._absent(error) if is_unserved else self._failed(error)
                self._lost(str(error))
            await asyncio.sleep(delay)

    async def _find(self) -> ApiResource:
        resource = await self._discovery.find(self.gvk)
        self._note_contact()
        path = resource.path(self.namespace)
        if path != self._path:
            self._path, self._resume_from = path, ""
        if self._absences:
            self._absences = 0
            self._kind_poll.reset()
            self.state, self.last_error = WatchState.CONNECTING, None
            self._log.info("The API server serves this kind now")
        return resource

    def _follow(self, resource: ApiResource) -> AsyncGenerator[WatchEvent]:
        """Choose the next step. Each step ends or raises, and sets the version to resume from."""
        if not resource.namespaced and not self._takes_cluster_scope:
            return self._wait_for_other_watcher()
        self.is_redundant = False
        if self._resume_from:
            return self._resumed(resource)
        return self._streamed_list(resource) if self._streams_lists else self._paged_list(resource)

    async def _wait_for_other_watcher(self) -> AsyncGenerator[WatchEvent]:
        """Wait while another watcher covers the kind, which is cluster-scoped."""
        self._note_success(WatchState.LIVE)
        if not self.is_redundant:
            self.is_redundant = True
            yield Requested()
            yield Restarted(self.namespace)
            yield Synced()
        self._found_all()
        await asyncio.sleep(self._policy.longest_kind_poll)

    async def _resumed(self, resource: ApiResource) -> AsyncGenerator[WatchEvent]:
        """Watch from the end of the last watch or list."""
        stream = self._stream(resource, {"resourceVersion": self._resume_from})
        try:
            async with aclosing(self._read(stream, listing=False)) as events:
                async for event in events:
                    yield event
        except ApiUnavailableError:
            if stream.timed_out and not self._gets_bookmarks:
                # This server promises no sign of life, so silence means nothing.
                return
            if stream.timed_out:
                # It would have sent bookmarks, had its resource versions reached ours: an older etcd was restored.
                self._resume_from = ""
            raise
        finally:
            self._ended(stream)

    async def _streamed_list(self, resource: ApiResource) -> AsyncGenerator[WatchEvent]:
        """List by a watch that begins with all existing objects, and continue to watch."""
        stream = self._stream(resource, {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})
        stream.patience = self._policy.list_idle_limit
        yield Requested()
        try:
            async with aclosing(self._read(stream, listing=True)) as events:
                async for event in events:
                    yield event
        except (ApiError, ApiUnavailableError) as error:
            if not self._resume_from:
                self._check_streamed_lists(stream, error)
            raise
        finally:
            self._ended(stream)

    async def _read(self, stream: WatchStream, *, listing: bool) -> AsyncGenerator[WatchEvent]:
        """Yield a watch's events, and note the version to resume from."""
        begun = False
        async with aclosing(stream.events(partial(self._opened, listing=listing))) as events:
            async for kind, obj in events:
                self._note_contact()
                if listing and not begun:
                    begun = True
                    yield Restarted(self.namespace)
                if kind != "BOOKMARK":
                    yield Deleted(obj) if kind == "DELETED" else Applied(obj)
                elif listing and annotations_of(obj).get(_INITIAL_EVENTS_END) == "true":
                    listing, stream.patience = False, None
                    self._note_success(WatchState.LIVE)
                    self._begin_period()
                    self._broken_lists = 0
                    yield Synced()
                    self._found_all()
                self._gets_bookmarks |= kind == "BOOKMARK"
                if not listing:
                    # Objects of a list come in no order, so that only its end is a place to resume from.
                    self._resume_from = str(metadata(obj).get("resourceVersion") or "")
        if stream.lasted >= self._timeout - _EARLY:
            self._ended_well = asyncio.get_running_loop().time()
        # The server ends a kind's watches when its CRD changes too; perhaps it got a status subresource.
        self._discovery.forget(self.gvk)
        if listing:
            raise ApiUnavailableError(
                f"streamed list of {self.gvk}: the server closed the stream before the list was complete"
            )

    async def _paged_list(self, resource: ApiResource) -> AsyncGenerator[WatchEvent]:
        """List page by page; the watch that follows is a separate step."""
        policy, pacer = self._policy, Pacer(self._policy.slice)
        limit, cont, begun = policy.first_page, "", False
        yield Requested()
        while True:
            page = await self._client.list_page(resource, self.namespace, self._selection, limit, cont)
            self._note_contact()
            if not begun:
                self._note_success(WatchState.LISTING)
                begun = True
                yield Restarted(self.namespace)
            if page.items:
                limit = max(1, min(policy.longest_page, policy.page_bytes * len(page.items) // page.size))
            while page.items:
                yield Applied(page.items.pop())
                await pacer.breathe()
            if not page.cont:
                break
            cont = page.cont
        # Kubernetes lists have a version. If one has none, "0" starts the watch from any version.
        self._resume_from = page.resource_version or "0"
        yield Synced()
        self._found_all()

    def _stream(self, resource: ApiResource, params: dict[str, str]) -> WatchStream:
        policy = self._policy
        ends_after = random.uniform(policy.shortest_watch, policy.longest_watch)  # noqa: S311 - spreads load
        self._timeout = int(ends_after)
        params |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(self._timeout)}
        if self._selection.labels:
            params["labelSelector"] = self._selection.labels
        if self._selection.fields:
            params["fieldSelector"] = self._selection.fields
        path, metadata_only = resource.path(self.namespace), self._selection.metadata_only
        return WatchStream(self._client, path, params, policy, metadata_only=metadata_only)

    def _check_streamed_lists(self, stream: WatchStream, error: Exception) -> None:
        """Switch to pages if the server refuses or ignores streamed lists, or fails repeatedly."""
        refused = isinstance(error, InvalidError) or (isinstance(error, ApiError) and error.status == _BAD_REQUEST)
        if stream.lasted:
            self._broken_lists += 1
        if refused or self._broken_lists >= _ENOUGH_BROKEN_LISTS:
            self._streams_lists = False
            self._log.debug("The API server does not stream lists; reading pages instead", error=str(error))

    def _opened(self, *, listing: bool) -> None:
        self._note_success(WatchState.LISTING if listing else WatchState.LIVE)
        if not listing:
            self._begin_period()
            self._found_all()

    def _begin_period(self) -> None:
        """Begin an unbroken period, unless the last one continues."""
        if asyncio.get_running_loop().time() - self._ended_well > _HARMLESS_GAP:
            self._unbroken_periods += 1
        self.unbroken_period = self._unbroken_periods

    def _ended(self, stream: WatchStream) -> None:
        self.unbroken_period = None
        if stream.settled:
            # Not sooner: a server may open every watch and close it at once.
            self._backoff.reset()

    def _note_contact(self) -> None:
        self.last_contact = asyncio.get_running_loop().time()

    def _note_success(self, state: WatchState) -> None:
        self._note_contact()
        if self.last_error is not None:
            self._log.info("Watch works again")
        self.state, self.last_error, self._not_found, self.is_refused = state, None, 0, False

    def _found_all(self) -> None:
        """Note that the consumer has all objects."""
        if self.unknown is not None:
            self.unknown = None
            self.known_again()

    def _lost(self, why: str) -> None:
        """Note that objects may come and go unseen."""
        since = self.unknown.since if self.unknown is not None else time.time()
        self.unknown = Unknown(self.gvk, self.namespace, why, since)

    def _absent(self, error: ApiError | ApiUnavailableError) -> float:
        """Note that the kind is not served; return the seconds until the next attempt."""
        self._note_contact()
        if not self._absences:
            self._log.warning("The API server does not serve this kind; waiting for it", error=str(error))
        self._absences += 1
        self._resume_from = ""
        self.state, self.last_error = WatchState.WAITING_FOR_KIND, str(error)
        return self._kind_poll.next()

    def _failed(self, error: ApiError | ApiUnavailableError) -> float:
        """Note an error; return the seconds until the next attempt."""
        delay, self.is_refused = self._backoff.next(), isinstance(error, ForbiddenError)
        if isinstance(error, NotFoundError | KindNotFoundError):
            # The kind was removed or moved: the next discovery shows which.
            self._discovery.forget(self.gvk)
            self._resume_from = ""
            self._not_found += 1
            if self._not_found < _ENOUGH_NOT_FOUND:
                return delay
        elif _is_expired(error):
            self._resume_from = ""
            self._log.info("The watch cannot resume; listing again", error=str(error))
            return delay
        elif isinstance(error, ApiError) and error.retry_after is not None:
            delay = max(delay, min(error.retry_after, self._policy.longest_retry_after))
        self.state, self.last_error = WatchState.FAILING, str(error)
        self._log_failure(error)
        return delay

    def _log_failure(self, error: Exception) -> None:
        """Log an error when it is new, and periodically while it lasts."""
        now = asyncio.get_running_loop().time()
        text, logged_at = self._logged
        if str(error) == text and now - logged_at < self._policy.repeat_log:
            return
        self._logged = (str(error), now)
        self._log.warning("Watch failed; retrying", error=str(error), **self._advice(error))

    def _advice(self, error: Exception) -> dict[str, str]:
        """Return the remedy as fields of the log."""
        if isinstance(error, ForbiddenError):
            return {"needs": "verbs get, list and watch on this kind"}
        if self._selection.fields and isinstance(error, ApiError) and error.status == _BAD_REQUEST:
            known = "metadata.name, metadata.namespace and the selectableFields of the kind's CRD"
            return {"needs": f"a field selector with fields that this kind supports: {known}"}
        return {}


def watchers(
    client: Client, discovery: Discovery, gvk: GVK, namespaces: Sequence[str], selection: Selection, policy: WatchPolicy
) -> tuple[Watcher, ...]:
    """Create a watcher per namespace. The first covers the whole kind if it is cluster-scoped.

    Without namespaces, one watcher covers all.
    """
    return tuple(
        Watcher(client, discovery, gvk, namespace, selection, policy, takes_cluster_scope=number == 0)
        for number, namespace in enumerate(namespaces or ("",))
    )


def covering(watched: Sequence[Watcher], namespace: str) -> Sequence[Watcher]:
    """Return the watchers of a namespace; all if it is empty, none if no one watches it."""
    found = [each for each in watched if namespace in {"", each.namespace} or not each.namespace]
    return [watched[0] if each.is_redundant else each for each in found]


def problem_of(watched: Sequence[Watcher]) -> str | None:
    """Return why objects are not watched; None if they are, or if the kind is not served yet.

    A refusal counts for its namespace: it is a problem of all only if each namespace is refused.
    """
    failing = [each for each in watched if each.state not in {WatchState.LIVE, WatchState.WAITING_FOR_KIND}]
    serious = failing if len(failing) == len(watched) else [each for each in failing if not each.is_refused]
    return next((f"{each.state}: {each.last_error or 'no response yet'}" for each in serious), None)


def _is_expired(error: Exception) -> bool:
    """Return True if the server rejects the version: too old (410), or newer than its data (504)."""
    return isinstance(error, GoneError) or "too large resource version" in str(error).lower()
