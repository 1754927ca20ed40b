"""Cache of API discovery: versions, groups, resources and OpenAPI documents.

The clients of each run first request the same discovery documents. The handler answers a repeated GET with the bytes of
an earlier response for two seconds. It does so without limit if the response is `immutable`: the URL of such a document
contains its digest.

Clients request one document after the other. So when a run begins, the cache requests those that the last run of the
kind requested (`read_ahead`), while the run's process starts.

The API server answers if a run requests a document a second time: clients do that if a kind is missing. It also answers
all requests of a run that reads or writes CRDs or APIServices. A write of these kinds empties the cache.

Promises: errors are not cached; no request waits for another one; requests with conditions, impersonation or a watch's
service account bypass the cache.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeAlias
from weakref import WeakKeyDictionary

from runner.base import log
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call, Proceed, Whole
from runner.core.proxy.http import messages
from runner.core.proxy.http.ends import ClientConnection
from runner.core.proxy.http.messages import Headers, RequestHead
from runner.core.proxy.identity import ActiveRun
from runner.values.errors import PASSING
from runner.values.objects import GVK

LARGEST = 4 << 20
"""Largest cached document in bytes. The OpenAPI of a cluster with hundreds of CRDs is larger and is not cached."""
_CAPACITY = 16 << 20
"""Bytes of all documents."""
_OVERHEAD = 1 << 10
"""Approximate bytes of a document's headers."""
_TIME_TO_LIVE = 2.0
"""Seconds. kubectl does not repeat its first request if a kind is missing, so this must remain short."""
_OLDEST_AHEAD = 1.0
"""Seconds after which a document is requested again when a run begins."""

_KINDS = frozenset({("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")})
_READS = frozenset({"get", "list", "watch"})
_NAME = "[A-Za-z0-9][A-Za-z0-9.-]*"
_DISCOVERY = re.compile(f"/version/?|/api(/{_NAME})?/?|/apis(/{_NAME}){{0,2}}/?|/openapi/v2|/openapi/v3(/{_NAME})*")
_NOT_CACHED = frozenset({b"audit-id", b"content-length", b"age"})
_BYPASS = (b"range", b"if-", b"cache-control", b"pragma", b"origin", b"impersonate-")
"""Beginnings of the names of request headers with which a request bypasses the cache."""
_VARY = frozenset({b"accept", b"accept-encoding", b"origin"})
_LONGEST_KEY, _MOST_REQUESTED = 2048, 1000
"""Bytes of a cached document's key, and documents of one run whose last request is known."""
_MOST_DOCUMENTS, _AT_ONCE = 32, 3
"""Documents that are read ahead for each kind, and at once, each on a connection of its own."""
_NEVER = float("-inf")
_OK = 200
_log = log.get(__name__)


DocumentKey: TypeAlias = tuple[str, bytes, bytes]
"""A discovery document: target, `Accept` and `Accept-Encoding` of its request."""


@dataclass(slots=True)
class DiscoveryRequests:
    """Discovery requests of a run."""

    requested: dict[DocumentKey, float] = field(default_factory=dict)
    """Time of the last request for each document."""
    bypasses_cache: bool = False
    """Set when the run reads or writes CRDs or APIServices."""
    are_ahead: bool = False
    """Whether the cache itself requests the documents, before the run does."""


@dataclass(frozen=True, slots=True)
class Document:
    """A cached response of the API server."""

    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    requested: float
    """Time of the request that returned it."""

    @property
    def is_immutable(self) -> bool:
        """True if it never expires."""
        return b"immutable" in messages.get(self.headers, b"cache-control")

    def answer(self, now: float) -> Answer:
        """Answer a request. RFC 9111, 5.1 (`Age`)."""
        length = len(self.body)
        more = [(b"Content-Length", length), (b"Age", max(0, now - self.requested))]
        headers = [*self.headers, *((name, b"%d" % value) for name, value in more), (b"X-Cache", b"HIT")]
        return Answer(_OK, b"", headers, length, Whole(self.body))


class Documents:
    """Documents up to a total size; the least recently used ones are evicted first."""

    def __init__(self) -> None:
        self._size = 0
        self._documents: OrderedDict[DocumentKey, Document] = OrderedDict()

    def get(self, key: DocumentKey) -> Document | None:
        """Return a document and mark it as used."""
        if key in self._documents:
            self._documents.move_to_end(key)
        return self._documents.get(key)

    def put(self, key: DocumentKey, document: Document) -> None:
        """Store a document, unless a newer one is cached."""
        current = self._documents.get(key)
        if current is not None and current.requested > document.requested:
            return
        self.drop(key)
        self._documents[key] = document
        self._size += _size(key, document)
        while self._size > _CAPACITY:
            self.drop(next(iter(self._documents)))

    def drop(self, key: DocumentKey) -> None:
        """Remove a document."""
        document = self._documents.pop(key, None)
        if document is not None:
            self._size -= _size(key, document)

    def drop_groups(self) -> None:
        """Remove all documents but OpenAPI, which the API server updates later."""
        for key in [key for key in self._documents if not key[0].startswith("/openapi/")]:
            self.drop(key)


class DiscoveryCache:
    """Handler that answers discovery requests from the cache."""

    def __init__(self, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        """`on_change` is called after each write of a CRD or APIService by a run."""
        self._clock = clock
        self._on_change = on_change
        self._documents = Documents()
        self._generation = 0
        self._requests: WeakKeyDictionary[ActiveRun, DiscoveryRequests] = WeakKeyDictionary()
        self._last: dict[GVK, tuple[DocumentKey, ...]] = {}
        """Cacheable documents that the last run of each kind requested."""

    async def read_ahead(self, active: ActiveRun, send: Proceed) -> None:
        """Request the documents that a new run will probably request, so that they are in the cache.

        Without them the run's own requests reach the API server, so an outage here changes nothing for it.
        """
        self._requests_of(active)
        run = active.run
        documents = () if run.service_account else self._last.get(run.owner.ref.gvk, ())
        ahead, at_once = ActiveRun(run), asyncio.Semaphore(_AT_ONCE)
        self._requests[ahead] = DiscoveryRequests(are_ahead=True)

        async def request_one(target: str, accept: bytes, encoding: bytes) -> None:
            headers = [header for header in ((b"Accept", accept), (b"Accept-Encoding", encoding)) if header[1]]
            head = RequestHead("GET", target, headers, "1.0", length=0, keep_alive=False, upgrade=b"")
            call = Call(head, request.parse("GET", target), ClientConnection(), headers, b"", ahead)
            async with at_once:
                try:
                    await send(call)
                finally:
                    call.end()

        try:
            async with asyncio.TaskGroup() as group:
                for document in documents:
                    group.create_task(request_one(*document))
        except* PASSING as error:
            _log.debug("Cannot read discovery documents ahead", job=run.ident, error=str(error.exceptions[0]))

    def _requests_of(self, active: ActiveRun) -> DiscoveryRequests:
        requests = self._requests.get(active)
        if requests is None:
            requests = self._requests[active] = DiscoveryRequests()
            active.at_end.append(partial(self._ended, active.run.owner.ref.gvk, requests))
        return requests

    def _ended(self, gvk: GVK, requests: DiscoveryRequests) -> None:
        """Remember the documents that a run requested, for the next one."""
        documents = () if requests.bypasses_cache else islice(requests.requested, _MOST_DOCUMENTS)
        self._last[gvk] = tuple(documents)

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        if (call.info.group, call.info.resource) in _KINDS:
            return await self._forward(call, proceed)
        key = None if call.run.run.service_account else _key(call)
        if key is None:
            return await proceed(call)
        document, not_before = self._documents.get(key), self._not_before(call, key)
        if document is not None and (document.is_immutable or document.requested > not_before):
            return document.answer(self._clock())
        return await self._request(call, proceed, key)

    async def _forward(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a request for CRDs or APIServices."""
        self._requests_of(call.run).bypasses_cache = True
        try:
            return await proceed(call)
        finally:
            if call.info.verb not in _READS:
                self._generation += 1
                self._documents.drop_groups()
                self._on_change()
                _log.debug("Cached discovery documents dropped")

    def _not_before(self, call: Call, key: DocumentKey) -> float:
        """Return a time: a response that was requested before must not be returned."""
        now, discovered = self._clock(), self._requests_of(call.run)
        before = discovered.requested.pop(key, _NEVER)
        if len(discovered.requested) >= _MOST_REQUESTED:
            del discovered.requested[next(iter(discovered.requested))]
        discovered.requested[key] = now
        if discovered.bypasses_cache:
            return now
        return max(before, now - (_OLDEST_AHEAD if discovered.are_ahead else _TIME_TO_LIVE))

    async def _request(self, call: Call, proceed: Proceed, key: DocumentKey) -> Answer:
        """Request a document from the API server, and cache the response."""
        now, generation = self._clock(), self._generation
        answer = await proceed(call)
        if not _is_cacheable(answer):
            self._documents.drop(key)
            return answer
        body = await answer.whole(LARGEST)
        if body is not None and generation == self._generation:
            headers = [header for header in answer.headers if header[0].lower() not in _NOT_CACHED]
            self._documents.put(key, Document(headers, body, now))
        return answer


def _key(call: Call) -> DocumentKey | None:
    """Return the cache key of a call; None if only the API server can answer it."""
    head = call.head
    if head.method != "GET" or head.length or head.upgrade:
        return None
    if not _DISCOVERY.fullmatch(head.target.partition("?")[0]):
        return None
    if any(name.lower().startswith(_BYPASS) for name, _ in call.headers):
        return None
    key = head.target, messages.joined(call.headers, b"accept"), messages.joined(call.headers, b"accept-encoding")
    return key if sum(map(len, key)) <= _LONGEST_KEY else None


def _is_cacheable(answer: Answer) -> bool:
    if answer.status != _OK or answer.length > LARGEST:
        return False
    if b"no-store" in messages.joined(answer.headers, b"cache-control"):
        return False
    return {name.strip().lower() for name in messages.joined(answer.headers, b"vary").split(b",")} - {b""} <= _VARY


def _size(key: DocumentKey, document: Document) -> int:
    return sum(map(len, key)) + len(document.body) + _OVERHEAD
