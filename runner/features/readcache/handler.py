"""Handler that answers GET requests for owned objects from the read cache, and reports all other requests to the cache.

Owns: which GETs the cache can answer, and how each forwarded request invalidates entries. A write, or a response that
is not parsed, invalidates its objects. A write with an unknown outcome invalidates them until the API server can no
longer execute it.

Promises: a cached response has the bytes of the API server's response and `X-Cache: HIT`, without the headers `Date`,
`Audit-Id` and those of flow control. `ReadCache` decides whether an entry is fresh. All other requests are forwarded
unchanged. Trials bypass the cache: they write nothing, and see other objects. Must run before every handler
that sends requests for a run, and after those that observe all responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

from runner.base.meters import Meters
from runner.core.kube.discovery import ApiResource
from runner.core.proxy import content
from runner.core.proxy.calls import Answer, Call, Proceed, Whole
from runner.core.proxy.http import messages
from runner.core.proxy.request import RequestInfo
from runner.core.reconcile.feature import Operator, Part, ProxyParts
from runner.features.readcache.bodies import MOST_BYTES, CacheEntries, CallScope, ObjectResponse, PendingCall, ReadCache
from runner.values.objects import ObjectKey, Owner, key_of

HIT, MISS = "hit", "miss"

_GIVEN_UP = 300.0
"""Seconds after which a write has taken place or never will. The API server ends requests after one minute
(`--request-timeout`), and their requests to etcd some seconds later.
"""
_JSON_RANGES = frozenset({b"application/json", b"*/*"})
_CONDITIONS = frozenset({b"cache-control", b"pragma", b"range"})
_PRETTY = (b"curl", b"Wget", b"Mozilla/5.0")
"""User agents that get indented responses from the API server."""
_OF_WRITES = frozenset({"fieldManager", "fieldValidation", "force"})
"""Query parameters of a write that do not change its response."""
_NOT_FOUND = HTTPStatus.NOT_FOUND


def counter(meters: Meters) -> Callable[[str], None]:
    """Declare the counter of GET requests for owned objects; return what counts one, with HIT or MISS."""
    reads = meters.counter(
        "ansible_operator_proxy_reads",
        "GET requests of runs for owned objects, answered by the cache (hit) or the API server (miss)",
        ["result"],
    )
    by_result = {result: reads.labels(result) for result in (HIT, MISS)}
    return lambda result: by_result[result].inc()


class CachedReads(Part):
    """Read cache, which listens to the watches of dependents."""

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Listen, and answer requests of runs."""
        cache = ReadCache(MOST_BYTES)
        operator.dependents.listener = cache
        size = operator.metrics.gauge("ansible_operator_dependents_kept_bytes", "Size of the cache of dependents")
        size.set_function(lambda: cache.size)
        handler = Reads(cache, operator.dependents.follows, counter(operator.metrics))
        self.proxy = ProxyParts(reads=(handler,))
        return {}


class Reads:
    """Handler that answers from the read cache."""

    def __init__(
        self, bodies: ReadCache, follows: Callable[[Owner, ApiResource], bool], count: Callable[[str], None]
    ) -> None:
        """`follows` returns whether objects of a kind are watched that runs of an owner create.

        `count` is called with HIT or MISS for each GET of an owned object.
        """
        self._bodies = bodies
        self._follows = follows
        self._count = count
        self._left: dict[CallScope, tuple[PendingCall, asyncio.TimerHandle]] = {}
        """The last write of each scope whose outcome is unknown, and its end."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        info, method = call.info, call.head.method
        if not info.is_resource or method == "OPTIONS" or call.run.run.view is not None:
            return await proceed(call)
        if method not in {"GET", "HEAD"}:
            return await proceed(call) if _is_dry_run(info) else await self._write(call, proceed)
        if method == "HEAD" or info.verb != "get" or info.subresource:
            return await self._show(call, proceed)
        entries = self._entries(call)
        if not _is_plain(call):
            if entries is not None and entries.is_seen(_place(info).key):
                self._note(call, MISS)
            return await self._show(call, proceed)
        body = self._bodies.find(info.path) if entries is not None and not call.run.run.is_bound else None
        if body is not None:
            self._note(call, HIT)
            return _hit(body)
        return await self._get(call, proceed)

    async def _get(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a plain GET, and cache the response."""
        attempt = self._begin(call, _place(call.info), self._bodies.ended_unobserved)
        answer = await proceed(call)
        if answer.status == _NOT_FOUND or answer.status in range(HTTPStatus.CREATED, HTTPStatus.MULTIPLE_CHOICES):
            self._bodies.passed(attempt)
        elif answer.status != HTTPStatus.OK or self._bodies.entries(*attempt.place[:2]) is None:
            self._bodies.ended_unobserved(attempt)
        else:
            await self._learn(call, answer, attempt)
        return answer

    def _begin(self, call: Call, place: CallScope, end: Callable[[PendingCall], None]) -> PendingCall:
        """Register a pending call. If it was not ended otherwise, it ends with `end` when the server ends the call."""
        attempt = self._bodies.begin(place)
        _at_end(call, attempt, end)
        return attempt

    async def _learn(self, call: Call, answer: Answer, attempt: PendingCall) -> None:
        response = await _object(answer, call.info.path)
        entries = self._entries(call)
        if response is None:
            self._bodies.passed(attempt)
            is_owned = entries is not None and entries.is_seen(attempt.place.key)
        else:
            is_owned = self._bodies.showed(attempt, response, wanted=entries is not None)
        if is_owned and entries is not None:
            self._note(call, MISS)

    async def _show(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a read whose response is not cached."""
        attempt = self._begin(call, self._shown(call.info), self._bodies.ended_unobserved)
        if call.info.verb == "watch":
            self._bodies.hold(attempt)
        answer = await proceed(call)
        if call.info.verb == "watch" and answer.is_success:
            _at_end(call, attempt, self._bodies.passed)
        elif answer.is_success or answer.status == _NOT_FOUND:
            self._bodies.passed(attempt)
        else:
            self._bodies.ended_unobserved(attempt)
        return answer

    async def _write(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a write: until it ends, the cache does not return its objects."""
        info, place = call.info, _place(call.info)
        is_create = info.verb == "create" and not place.name
        attempt = self._begin(call, place, partial(self._leave_open, call))
        if not is_create:
            self._bodies.hold(attempt)
        answer = await proceed(call)
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.REQUEST_TIMEOUT:
            self._leave_open(call, attempt)
        elif is_create and not answer.is_success:
            self._bodies.ended_unobserved(attempt)
        elif _answers_object(info) and answer.is_success and self._bodies.entries(*place[:2]) is not None:
            await self._learn_written(call, answer, attempt)
        else:
            self._bodies.passed(attempt)
        return answer

    async def _learn_written(self, call: Call, answer: Answer, attempt: PendingCall) -> None:
        """Cache the object in the response to a write, or at least invalidate it by its name."""
        _at_end(call, attempt, self._bodies.passed)
        response = await _object(answer, "")
        key = key_of(response.obj) if response is not None else ObjectKey("", "")
        place = attempt.place if attempt.place.name else attempt.place._replace(name=key.name)
        if response is None or place.key != key:
            # The response is not the object, but the object was written. Without a name, invalidate its namespace.
            self._bodies.passed(attempt)
            return
        path = _path(call.info, key)
        if _takes_json(call) and _leaves_answer(call.info):
            read = ObjectResponse(path, response.content, response.obj)
            self._bodies.wrote(attempt, place, read, wanted=self._entries(call) is not None)
        else:
            self._bodies.passed(attempt, place)

    def _leave_open(self, call: Call, attempt: PendingCall) -> None:
        """Invalidate the objects of a write with an unknown outcome for some time, because it can still take place."""
        if attempt.is_left:
            return
        if not attempt.place.name and isinstance(call.content, bytes):
            # The name of the object that would have been created.
            obj = call.parsed().object if content.is_readable(call.media) else None
            name = key_of(obj).name if obj is not None else ""
            self._bodies.ended_unobserved(attempt)
            attempt = self._bodies.begin(attempt.place._replace(name=name))
        attempt.is_left = True
        self._bodies.hold(attempt)
        if (earlier := self._left.get(attempt.place)) is not None:
            earlier[1].cancel()
            self._bodies.ended_unobserved(earlier[0])
        self._left[attempt.place] = attempt, asyncio.get_running_loop().call_later(_GIVEN_UP, self._give_up, attempt)

    def _give_up(self, attempt: PendingCall) -> None:
        del self._left[attempt.place]
        self._bodies.passed(attempt)

    def _entries(self, call: Call) -> CacheEntries | None:
        """Return the cache entries of a call's kind, if its run can get cached responses."""
        run, info = call.run.run, call.info
        if not (run.inject and run.watch_dependents) or run.service_account:
            return None
        entries = self._bodies.entries(info.group, info.resource)
        return entries if entries is not None and self._follows(run.owner, entries.resource) else None

    def _shown(self, info: RequestInfo) -> CallScope:
        """Return the objects that a response can contain."""
        place = _place(info)
        entries = self._bodies.entries(*place[:2])
        if not place.namespace and (entries is None or entries.resource.namespaced):
            # All namespaces, possibly with one name.
            return place._replace(name="")
        return place

    def _note(self, call: Call, result: str) -> None:
        call.noted["cache"] = result
        call.run.run.stats.read(hit=result == HIT)
        self._count(result)


def _place(info: RequestInfo) -> CallScope:
    """Return the objects of a request."""
    if not info.group and info.resource == "bindings":
        # This binds pods to nodes; the content contains the pod's name.
        return CallScope("", "pods", info.namespace, "")
    return CallScope(info.group, info.resource, *info.key)


def _path(info: RequestInfo, key: ObjectKey) -> str:
    """Return the decoded path of an object, in the API version of the request."""
    root = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    space = f"/namespaces/{key.namespace}" if key.namespace else ""
    return f"{root}{space}/{info.resource}/{key.name}"


def _is_plain(call: Call) -> bool:
    """Return whether a GET requests one object as JSON, without parameters or conditions."""
    info = call.info
    if "?" in call.head.target or call.head.length or call.head.upgrade:
        return False
    return info.path == _path(info, _place(info).key) and _takes_json(call)


def _takes_json(call: Call) -> bool:
    """Return whether the response is JSON that does not depend on other headers."""
    for name, value in call.headers:
        lower = name.lower()
        if lower == b"accept":
            if not _JSON_RANGES.issuperset(media_range.strip() for media_range in value.split(b",")):
                return False
        elif lower == b"user-agent":
            if value.startswith(_PRETTY):
                return False
        elif lower in _CONDITIONS or lower.startswith((b"if-", b"impersonate-")):
            return False
    return True


def _answers_object(info: RequestInfo) -> bool:
    """Return whether the response to a write contains the written object."""
    return info.verb in {"create", "update", "patch"} and not info.subresource


def _leaves_answer(info: RequestInfo) -> bool:
    """Return whether the response to a write equals that of a GET."""
    return all(part.partition("=")[0] in _OF_WRITES for part in info.query.split("&") if part)


def _is_dry_run(info: RequestInfo) -> bool:
    """Return whether a write is a dry run. Deletions are excluded, because their content can contain options."""
    return info.verb in {"create", "update", "patch"} and "dryRun=All" in info.query.split("&")


async def _object(answer: Answer, path: str) -> ObjectResponse | None:
    """Return the object in a response, which is still sent to the client; None if it cannot be cached."""
    if messages.get(answer.headers, b"warning"):
        # For example, of a deprecated version: every read must return the warning.
        return None
    obj = await answer.object()
    return ObjectResponse(path, await answer.data() or b"", obj) if obj is not None else None


def _at_end(call: Call, attempt: PendingCall, end: Callable[[PendingCall], None]) -> None:
    """End a pending call when the server ends the call, unless it was ended before."""
    call.ends.append(lambda: None if attempt.is_ended else end(attempt))


def _hit(data: bytes) -> Answer:
    headers = [
        (b"Cache-Control", b"no-cache, private"),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(data)),
        (b"X-Cache", b"HIT"),
    ]
    return Answer(HTTPStatus.OK, b"OK", headers, len(data), Whole(data))
