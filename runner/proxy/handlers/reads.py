"""Answers GETs of owned objects from memory where that is sure to be fresh, and has every other call told to memory.

Owns: which GETs can be answered from memory (plain ones, by runs that may), and what each call that is passed on means
for what is kept: a write, or an answer that is not looked into, makes it doubtful; a write whose outcome nobody knows
keeps it doubtful until the API server must have given it up.

Promises: what is answered from memory is what the API server answered, byte for byte, with `X-Cache: HIT`; its headers
`Date`, `Audit-Id` and those of flow control are left out. Whether it is fresh, `bodies` says. All other calls pass as
they are. Must stand before every handler that asks the API server on behalf of a run, and behind those that see all
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from runner.kube.discovery import ApiResource
from runner.objects import ObjectKey, key_of
from runner.ownership import Owner
from runner.proxy.calls import Answer, Call, Proceed, Whole
from runner.proxy.handlers import content
from runner.proxy.http.messages import Headers
from runner.proxy.request import RequestInfo
from runner.readcache.bodies import ObjectResponse, ReadCache
from runner.readcache.entries import CacheEntries
from runner.readcache.inflight import CallScope, PendingCall

HIT, MISS = "hit", "miss"

_GIVEN_UP = 300.0
"""Seconds after which the API server has done what it was asked for, or never will: requests end after one minute
(`--request-timeout`), and what they have asked etcd for some seconds later."""
_JSON_RANGES = frozenset({b"application/json", b"*/*"})
_CONDITIONS = frozenset({b"cache-control", b"pragma", b"range"})
_PRETTY = (b"curl", b"Wget", b"Mozilla/5.0")
"""User agents that the API server indents answers for."""
_OF_WRITES = frozenset({"fieldManager", "fieldValidation", "force"})
"""Parameters that leave the answer to a write as a GET would give it."""
_NOT_FOUND = HTTPStatus.NOT_FOUND
_REDIRECT = 300


class CachePolicy(Protocol):
    """Who knows whose dependents objects are."""

    def caches(self, owner: Owner, resource: ApiResource) -> bool:
        """Whether runs of this owner may be answered from memory for objects of this kind."""
        ...


class Reads:
    """The handler."""

    def __init__(self, bodies: ReadCache, rights: CachePolicy, count: Callable[[str], None]) -> None:
        """`count` is told of each GET of an owned object whether it was a HIT or a MISS."""
        self._bodies = bodies
        self._rights = rights
        self._count = count

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        info, method = call.info, call.head.method
        if not info.is_resource or method == "OPTIONS":
            return await proceed(call)
        if method not in {"GET", "HEAD"}:
            return await proceed(call) if _is_dry_run(info) else await self._write(call, proceed)
        if method == "HEAD" or info.verb != "get" or info.subresource:
            return await self._show(call, proceed)
        shelf = self._shelf(call)
        if not _is_plain(call):
            if shelf is not None and _place(info).key in shelf.seen:
                self._note(call, MISS)
            return await self._show(call, proceed)
        found = self._bodies.find(info.path) if shelf is not None else None
        if found is not None:
            self._note(call, HIT)
            return _hit(found)
        return await self._get(call, proceed)

    async def _get(self, call: Call, proceed: Proceed) -> Answer:
        """Pass a plain GET on, and keep the answer."""
        attempt = self._bodies.begin(_place(call.info))
        try:
            answer = await proceed(call)
        except BaseException:
            self._bodies.taught_nothing(attempt)
            raise
        if answer.status == _NOT_FOUND or answer.status in range(HTTPStatus.CREATED, _REDIRECT):
            self._bodies.passed(attempt)
        elif answer.status != HTTPStatus.OK or self._bodies.shelf(*attempt.place[:2]) is None:
            self._bodies.taught_nothing(attempt)
        else:
            await self._learn(call, answer, attempt)
        return answer

    async def _learn(self, call: Call, answer: Answer, attempt: PendingCall) -> None:
        try:
            found = await _object(answer, call.info.path)
        except BaseException:
            self._bodies.taught_nothing(attempt)
            answer.finish()
            raise
        shelf = self._shelf(call)
        if found is None:
            self._bodies.passed(attempt)
            is_owned = shelf is not None and attempt.place.key in shelf.seen
        else:
            is_owned = self._bodies.showed(attempt, found, wanted=shelf is not None)
        if is_owned and shelf is not None:
            self._note(call, MISS)

    async def _show(self, call: Call, proceed: Proceed) -> Answer:
        """Pass a call on whose answer shows objects that nobody looks at here."""
        attempt = self._bodies.begin(self._shown(call.info))
        if call.info.verb == "watch":
            self._bodies.hold(attempt)
        try:
            answer = await proceed(call)
        except BaseException:
            self._bodies.taught_nothing(attempt)
            raise
        if call.info.verb == "watch" and answer.status < _REDIRECT:
            self._end_with(answer, attempt)
        elif answer.status < _REDIRECT or answer.status == _NOT_FOUND:
            self._bodies.passed(attempt)
        else:
            self._bodies.taught_nothing(attempt)
        return answer

    def _end_with(self, answer: Answer, attempt: PendingCall) -> None:
        """End an attempt when the answer's content has been sent, or nobody wants it any more."""
        before = answer.finish

        def finish() -> None:
            self._bodies.passed(attempt)
            before()

        answer.finish = finish

    async def _write(self, call: Call, proceed: Proceed) -> Answer:
        """Pass a write on: until it has ended, nothing that it is about is answered from memory."""
        info, place = call.info, _place(call.info)
        is_create = info.verb == "create" and not place.name
        attempt = self._bodies.begin(place)
        if not is_create:
            self._bodies.hold(attempt)
        try:
            answer = await proceed(call)
        except BaseException:
            self._leave_open(call, attempt)
            raise
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status == HTTPStatus.REQUEST_TIMEOUT:
            self._leave_open(call, attempt)
        elif is_create and answer.status >= _REDIRECT:
            self._bodies.taught_nothing(attempt)
        elif _answers_object(info) and answer.status < _REDIRECT and self._bodies.shelf(*place[:2]) is not None:
            await self._learn_written(call, answer, attempt)
        else:
            self._bodies.passed(attempt)
        return answer

    async def _learn_written(self, call: Call, answer: Answer, attempt: PendingCall) -> None:
        """Learn from the answer to a write what was written, or at least under which name."""
        try:
            found = await _object(answer, "")
        except BaseException:
            self._bodies.passed(attempt)
            answer.finish()
            raise
        key = key_of(found.obj) if found is not None else ObjectKey("", "")
        place = attempt.place if attempt.place.name else attempt.place._replace(name=key.name)
        if found is None or place.key != key:
            # Not the object itself, which has been written though: where no name is known, any of the namespace.
            self._bodies.passed(attempt)
            return
        path = _path(call.info, key)
        if _takes_json(call) and _leaves_answer(call.info):
            read = ObjectResponse(path, found.content, found.obj)
            self._bodies.wrote(attempt, place, read, wanted=self._shelf(call) is not None)
        else:
            self._bodies.passed(attempt, place)

    def _leave_open(self, call: Call, attempt: PendingCall) -> None:
        """Nobody knows whether a write has taken place, or still will: nothing is answered from memory for a time."""
        if not attempt.place.name and isinstance(call.content, bytes):
            # The name of what would have been created.
            media = content.media_type(call.head.get(b"content-type"))
            obj = content.parse(media, call.content) if content.is_readable(media) else None
            name = key_of(obj).name if obj is not None else ""
            self._bodies.taught_nothing(attempt)
            attempt = self._bodies.begin(attempt.place._replace(name=name))
        self._bodies.hold(attempt)
        asyncio.get_running_loop().call_later(_GIVEN_UP, self._bodies.passed, attempt)

    def _shelf(self, call: Call) -> CacheEntries | None:
        """Return what is kept of the kind that a call is about, if its run may be answered from there."""
        run, info = call.run.run, call.info
        if not (run.inject and run.watch_dependents) or run.service_account:
            return None
        shelf = self._bodies.shelf(info.group, info.resource)
        return shelf if shelf is not None and self._rights.caches(run.owner, shelf.resource) else None

    def _shown(self, info: RequestInfo) -> CallScope:
        """What an answer may show."""
        place = _place(info)
        shelf = self._bodies.shelf(*place[:2])
        if not place.namespace and (shelf is None or shelf.resource.namespaced):
            # Of all namespaces, perhaps by one name.
            return place._replace(name="")
        return place

    def _note(self, call: Call, result: str) -> None:
        call.cached = result
        call.run.run.stats.read(hit=result == HIT)
        self._count(result)


def _place(info: RequestInfo) -> CallScope:
    """What a call is about."""
    if not info.group and info.resource == "bindings":
        # Pods are bound to nodes by this; which one stands in the content.
        return CallScope("", "pods", info.namespace, "")
    is_namespace = not info.group and info.resource == "namespaces"
    return CallScope(info.group, info.resource, "" if is_namespace else info.namespace, info.name)


def _path(info: RequestInfo, key: ObjectKey) -> str:
    """The path, decoded, under which a GET finds an object in the version that a call speaks of."""
    root = f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"
    space = f"/namespaces/{key.namespace}" if key.namespace else ""
    return f"{root}{space}/{info.resource}/{key.name}"


def _is_plain(call: Call) -> bool:
    """Whether a GET wants an object as it is now, as JSON, with the operator's rights, and nothing else."""
    info = call.info
    if "?" in call.head.target or call.head.length or call.head.upgrade:
        return False
    return info.path == _path(info, _place(info).key) and _takes_json(call)


def _takes_json(call: Call) -> bool:
    """Whether an answer is going to be plain JSON, the same for everybody."""
    for name, value in call.headers:
        lower = name.lower()
        if lower == b"accept":
            if not _JSON_RANGES.issuperset(each.strip() for each in value.split(b",")):
                return False
        elif lower == b"user-agent":
            if value.startswith(_PRETTY):
                return False
        elif lower in _CONDITIONS or lower.startswith((b"if-", b"impersonate-")):
            return False
    return True


def _answers_object(info: RequestInfo) -> bool:
    """Whether a write is answered with the object that it wrote."""
    return info.verb in {"create", "update", "patch"} and not info.subresource


def _leaves_answer(info: RequestInfo) -> bool:
    """Whether a write's parameters leave its answer as it is: what is written, and that whole."""
    return all(part.partition("=")[0] in _OF_WRITES for part in info.query.split("&") if part)


def _is_dry_run(info: RequestInfo) -> bool:
    """Whether a write writes nothing for sure. Options of a deletion may stand in its content instead."""
    return info.verb in {"create", "update", "patch"} and "dryRun=All" in info.query.split("&")


async def _object(answer: Answer, path: str) -> ObjectResponse | None:
    """Take an object off an answer, which still goes to the client; None when it is not plain."""
    if _has(answer.headers, b"warning"):
        # Of a version that is deprecated, say: every read says so.
        return None
    data = await content.json_in(answer)
    obj = content.parse(content.JSON, data)
    return ObjectResponse(path, data, obj) if obj is not None else None


def _has(headers: Headers, wanted: bytes) -> bool:
    return any(name.lower() == wanted for name, _ in headers)


def _hit(data: bytes) -> Answer:
    headers = [
        (b"Cache-Control", b"no-cache, private"),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(data)),
        (b"X-Cache", b"HIT"),
    ]
    return Answer(HTTPStatus.OK, b"OK", headers, len(data), Whole(data))
