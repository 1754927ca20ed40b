"""What the API server serves, answered from memory: versions, groups, kinds, OpenAPI.

Each client of a run finds out first what there is, and most runs find the same. So answers are kept, and given again
byte by byte as long as they hold:

- for two seconds after the API server gave them;
- after that as long as the `ETag` of all groups and kinds together (aggregated discovery,
  https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery) is what it was: one small call
  vouches for every document about groups and kinds. OpenAPI documents are asked for again, by their own `ETag`;
- never when a run asks for what it was given before. Clients do that when they miss a kind.

A run that reads or writes CRDs or APIServices is given nothing from memory from then on, and such a write, as a changed
`ETag`, ends what was kept. The right to watch these kinds is not needed.

Promises: errors are not kept; nobody waits for the call of another, but for the one that vouches; runs that call as
another account, or impersonate, ask the API server. Must not import: the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runner import log
from runner.errors import ApiUnavailableError
from runner.proxy import request
from runner.proxy.calls import Answer, Call, Proceed
from runner.proxy.handlers import documents
from runner.proxy.handlers.documents import Document, Documents, Key
from runner.proxy.http import messages
from runner.proxy.http.connection import BrokenError, MalformedError
from runner.proxy.http.messages import Headers, RequestHead

_FRESH = 2.0
"""Seconds for which nobody asks whether an answer still holds."""
_LONGEST = 300.0
"""Seconds for which one may be vouched for. The `ETag` does not tell of all that stands in the documents."""
_SETTLING = 10.0
"""Seconds after a change within which documents may still follow it, one after the other."""
_UNABLE = 60.0
"""Seconds until an API server without aggregated discovery is asked for it again."""
_PATIENCE = 5.0

_KINDS = frozenset({("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")})
_READS = frozenset({"get", "list", "watch"})
_GROUPS = "/apis"
_TYPE = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_ACCEPT = ",".join([_TYPE.format("v2"), _TYPE.format("v2beta1"), "application/json"]).encode()
_NEVER = float("-inf")
_NOT_MODIFIED = 304
_log = log.get(__name__)


class Catalog:
    """The handler."""

    def __init__(self, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        """`changed` is called when the API server has begun to serve other kinds, or may have."""
        self._clock = clock
        self._changed = changed
        self._documents = Documents()
        self._edition = 0
        self._settled = _NEVER
        """Since when all documents say the same of the last change."""
        self._etag = b""
        self._vouched = _NEVER
        """When the API server was last asked for `_etag`."""
        self._unable_until = _NEVER
        self._vouching = asyncio.Lock()

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        if (call.info.group, call.info.resource) in _KINDS:
            return await self._pass(call, proceed)
        key = None if call.run.run.service_account else documents.key_of(call)
        if key is None:
            return await proceed(call)
        since = self._since(call, key)
        document = self._documents.get(key)
        if document is not None and await self._holds(document, key, since, call, proceed):
            return documents.give(document, call, b"HIT", self._clock())
        return await self._ask(call, proceed, key, document)

    async def _pass(self, call: Call, proceed: Proceed) -> Answer:
        """Pass on what concerns the kinds that there are."""
        call.run.discovered.from_server = True
        try:
            return await proceed(call)
        finally:
            if call.info.verb not in _READS:
                self._begin_edition()

    def _since(self, call: Call, key: Key) -> float:
        """Since when an answer to this run must have been asked for: since the run was last given it."""
        now, discovered = self._clock(), call.run.discovered
        before = discovered.asked.get(key, _NEVER)
        discovered.asked[key] = now
        return now if discovered.from_server else before

    async def _holds(self, document: Document, key: Key, since: float, call: Call, proceed: Proceed) -> bool:
        """Whether a document says what the API server would say."""
        if document.is_immutable:
            return True
        if document.asked <= since:
            return False
        now = self._clock()
        if document.asked > now - _FRESH:
            return True
        if not documents.is_of_groups(key) or document.asked < max(self._settled, now - _LONGEST):
            return False
        await self._vouch(call, proceed)
        return document.edition == self._edition and self._vouched > now - _FRESH

    async def _vouch(self, call: Call, proceed: Proceed) -> None:
        """Find out whether groups and kinds are what they were, unless that was done a moment ago."""
        async with self._vouching:
            began = self._clock()
            if began < max(self._vouched + _FRESH, self._unable_until):
                return
            try:
                async with asyncio.timeout(_PATIENCE):
                    etag = await self._ask_etag(call, proceed)
            except (ApiUnavailableError, BrokenError, MalformedError, TimeoutError):
                # Then nothing is vouched for, and the call itself finds out what is wrong.
                self._unable_until = self._clock() + _FRESH
                return
            if not etag:
                self._unable_until = began + _UNABLE
                return
            if etag != self._etag:
                self._etag = etag
                self._begin_edition()
            self._vouched = began

    async def _ask_etag(self, call: Call, proceed: Proceed) -> bytes:
        """Ask for the `ETag` of all groups and kinds; empty where the API server has none."""
        headers: Headers = [(b"Accept", _ACCEPT), (b"Accept-Encoding", b"gzip")]
        if self._etag:
            headers.append((b"If-None-Match", self._etag))
        head = RequestHead("GET", _GROUPS, headers, "1.1", 0, keep_alive=True, upgrade=b"")
        info = request.parse("GET", _GROUPS)
        answer = await proceed(Call(head, info, call.client, headers, b"", call.session))
        try:
            if answer.status == _NOT_MODIFIED:
                return self._etag
            if not documents.can_be_kept(answer) or b"as=APIGroupDiscoveryList" not in _type_of(answer):
                return b""
            # Read to its end, since the connection is good for another call then.
            await answer.whole(documents.LARGEST)
            return messages.get(answer.headers, b"etag")
        finally:
            answer.finish()

    async def _ask(self, call: Call, proceed: Proceed, key: Key, known: Document | None) -> Answer:
        """Ask the API server, and keep its answer."""
        if documents.is_of_groups(key):
            # What a later `ETag` is compared with has to be older than what it vouches for.
            await self._vouch(call, proceed)
        asked, edition = self._clock(), self._edition
        if known is not None and known.etag:
            kept = [each for each in call.headers if each[0].lower() != b"if-none-match"]
            call.headers = [*kept, (b"If-None-Match", known.etag)]
        answer = await proceed(call)
        if known is not None and known.etag and answer.status == _NOT_MODIFIED:
            answer.finish()
            known.asked, known.edition = asked, edition
            self._keep(key, known)
            return documents.give(known, call, b"REVALIDATED", asked)
        if not documents.can_be_kept(answer):
            self._documents.drop(key)
            return answer
        body = await _read(answer)
        if body is not None:
            self._keep(key, documents.make(answer, body, asked, edition))
        return answer

    def _keep(self, key: Key, document: Document) -> None:
        if document.edition == self._edition:
            self._documents.put(key, document)

    def _begin_edition(self) -> None:
        """Forget what was, since what is served has changed, or may have."""
        self._edition += 1
        self._settled = self._clock() + _SETTLING
        self._documents.drop_groups()
        self._changed()
        _log.debug("Cached discovery documents dropped")


async def _read(answer: Answer) -> bytes | None:
    """Read an answer's content, which still goes to the client; None when it is too large to be kept."""
    try:
        body = await answer.whole(documents.LARGEST)
    except BaseException:
        answer.finish()
        raise
    if body is not None:
        # The connection is free for others, however slow this client is.
        answer.finish()
        answer.finish = _nothing
    return body


def _nothing() -> None:
    """There is nothing left to be finished."""


def _type_of(answer: Answer) -> bytes:
    return messages.get(answer.headers, b"content-type")
