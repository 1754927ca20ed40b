"""Watcher of one kind in one namespace or in all.

Flow: each step finds out how the kind is served, and then lists or watches from a position (see `watch_steps`).
`connecting`: no request was accepted yet. `listing` reports `Requested` before its request, and then a complete list
between `Restarted` and `Synced`. `live` reports each change. `waiting for kind`: the API server does not serve the
kind. `failing`: the last attempt failed with `last_error`; the next one follows automatically.

Guarantees: `follow` never ends and does not raise errors of the API. A watch that ends is resumed without a list while
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
from collections.abc import Sequence
from typing import NoReturn, Protocol, TypeVar

from runner.base import log
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.watch_events import Applied, Requested, Restarted, Synced, Take
from runner.core.kube.watch_health import WatchHealth, WatchState
from runner.core.kube.watch_steps import From, Next, Page, Phase, Position, ServerTraits, Start, StepEnd, next_step
from runner.core.kube.watch_stream import Pacer, WatchPolicy, WatchStream
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK

_BAD_REQUEST = 400


class _Watch(Protocol):
    """Watch of one of the namespaces of a kind."""

    @property
    def health(self) -> WatchHealth:
        """State of the watch."""


W = TypeVar("W", bound=_Watch)


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
            server, streamed = self._server.after(end), self._server.streams_lists
            self._server = server
            if streamed and not server.streams_lists:
                self._log.debug("The API server does not stream lists; reading pages instead", error=str(end.error))
            action, position = next_step(end, server)
            delay = 0.0 if end.error is None else self._failed(action, end.error)
            await asyncio.sleep(delay)

    async def _step(self, position: Position, take: Take) -> StepEnd:
        """List or watch from a position, until the API server ends it or an error occurs."""
        try:
            resource = await self._discovery.find(self.gvk)
        except (ApiError, ApiUnavailableError) as error:
            return StepEnd(Phase.DISCOVERY, position, error)
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
        if self._server.streams_lists:
            return await self._watch(path, "", take)
        return await self._page(resource, Page(path, "", self._policy.first_page), take)

    async def _wait_for_other_watcher(self, take: Take) -> StepEnd:
        """Wait while another watcher covers the kind, which is cluster-scoped."""
        self.health.accepted(WatchState.LIVE)
        if not self.health.is_redundant:
            self.health.is_redundant = True
            take(Requested())
            take(Restarted(self.namespace))
            take(Synced())
        self.health.complete()
        await asyncio.sleep(self._policy.longest_kind_poll)
        return StepEnd(Phase.WATCH, Start(), was_accepted=True)

    async def _page(self, resource: ApiResource, page: Page, take: Take) -> StepEnd:
        """Read a page of a list; the watch that follows the last page is a separate step."""
        policy, pacer = self._policy, Pacer(self._policy.slice)
        try:
            answer = await self._client.list_page(resource, self.namespace, self._selection, page.limit, page.token)
        except (ApiError, ApiUnavailableError) as error:
            return StepEnd(Phase.PAGE, page, error)
        self.health.contacted()
        if not page.token:
            self.health.accepted(WatchState.LISTING)
            take(Restarted(self.namespace))
        limit = page.limit
        if answer.items:
            limit = max(1, min(policy.longest_page, policy.page_bytes * len(answer.items) // answer.size))
        while answer.items:
            take(Applied(answer.items.pop()))
            await pacer.breathe()
        if answer.cont:
            return StepEnd(Phase.PAGE, Page(page.path, answer.cont, limit), was_accepted=True)
        take(Synced())
        self.health.complete()
        # Kubernetes lists have a version. If one has none, "0" starts the watch from any version.
        return StepEnd(Phase.PAGE, From(page.path, answer.resource_version or "0"), was_accepted=True)

    async def _watch(self, path: str, version: str, take: Take) -> StepEnd:
        """Watch from a version. If it is empty, the API server streams a list first."""
        stream = WatchStream(self._client, path, self._selection, self._policy, self.health, version)
        error: ApiError | ApiUnavailableError | None = None
        try:
            await stream.read(take)
        except (ApiError, ApiUnavailableError) as caught:
            error = caught
        else:
            # The server ends a kind's watches when its CRD changes too; perhaps it got a status subresource.
            self._discovery.forget(self.gvk)
            if stream.is_listing:
                error = ApiUnavailableError(
                    f"streamed list of {self.gvk}: the server closed the stream before the list was complete"
                )
        if stream.settled:
            # Not sooner: a server may open every watch and close it at once.
            self._backoff.reset()
        return StepEnd(
            Phase.STREAMED_LIST if stream.is_listing else Phase.WATCH,
            From(path, stream.version) if stream.version else Start(),
            error,
            was_accepted=stream.was_open,
            was_silent=stream.timed_out,
            has_bookmarks=stream.has_bookmarks,
        )

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
                delay = max(delay, min(error.retry_after, self._policy.longest_retry_after))
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
    client: Client, discovery: Discovery, gvk: GVK, namespaces: Sequence[str], selection: Selection, policy: WatchPolicy
) -> tuple[Watcher, ...]:
    """Create a watcher per namespace. The first covers the whole kind if it is cluster-scoped.

    Without namespaces, one watcher covers all.
    """
    return tuple(
        Watcher(client, discovery, gvk, namespace, selection, policy, takes_cluster_scope=number == 0)
        for number, namespace in enumerate(namespaces or ("",))
    )


def covering(watches: Sequence[W], namespace: str) -> Sequence[W]:
    """Return the watches of a namespace; all if it is empty, none if no one watches it."""
    of_namespace = [watch for watch in watches if not namespace or watch.health.namespace in {"", namespace}]
    return [watches[0] if watch.health.is_redundant else watch for watch in of_namespace]


def problem_of(watched: Sequence[Watcher]) -> str | None:
    """Return why objects are not watched; None if they are, or if the kind is not served yet.

    A refusal counts for its namespace: it is a problem of all only if each namespace is refused.
    """
    failing = [watcher.health for watcher in watched if watcher.health.problem]
    serious = failing if len(failing) == len(watched) else [health for health in failing if not health.is_refused]
    return next((health.problem for health in serious), None)
