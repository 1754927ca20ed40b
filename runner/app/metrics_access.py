"""Handlers of `/metrics`: for all clients, or for those whose user may read it by the reviews of the API server."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from aiohttp import web

from runner.base import log
from runner.base.monitoring.endpoints import Handler
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError
from runner.values.objects import Object

_ALLOWED_FOR, _REFUSED_FOR = 60.0, 10.0
_MOST = 1024
"""Maximum number of cached permissions, and of cached refusals."""
_AT_ONCE = 16
"""Maximum number of concurrent calls."""
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"


class AccessVerdict(Enum):
    """Result of a review."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "the token is not valid"
    REFUSED = "the user may not"


@dataclass(frozen=True, slots=True)
class AccessReview:
    """A result and the user."""

    verdict: AccessVerdict
    user: str = ""


_Known: TypeAlias = OrderedDict[bytes, tuple[float, AccessReview]]


class AccessReviews:
    """Authentication and authorization of clients by their token. Errors are those of the client.

    A short cache of the results makes a scrape every few seconds cost no call each. Tokens are stored as digests. A
    permission is cached for a minute, a refusal for ten seconds. Refusals have a cache of their own: a client that
    sends many invalid tokens does not remove permissions. Source:
    https://kubernetes.io/docs/reference/access-authn-authz/webhook/.
    """

    def __init__(self, request: Callable[..., Awaitable[Object]], clock: Callable[[], float]) -> None:
        """`request` is that of a client; `clock` counts seconds."""
        self._request = request
        self._clock = clock
        self._allowed: _Known = OrderedDict()
        self._refused: _Known = OrderedDict()
        self._locks = [asyncio.Lock() for _ in range(_AT_ONCE)]

    async def review(self, token: str) -> AccessReview:
        """Review if the bearer of this token may get the metrics."""
        key = hashlib.sha256(token.encode()).digest()
        known = self._cached(key)
        if known is not None:
            return known
        async with self._locks[key[0] % _AT_ONCE]:  # concurrent requests with a token share one review
            known = self._cached(key)
            if known is not None:
                return known
            review = await self._review(token)
            if review.verdict is AccessVerdict.ALLOWED:
                cache, lasting = self._allowed, _ALLOWED_FOR
            else:
                cache, lasting = self._refused, _REFUSED_FOR
            cache[key] = (self._clock() + lasting, review)
            if len(cache) > _MOST:
                cache.popitem(last=False)
        return review

    def _cached(self, key: bytes) -> AccessReview | None:
        for cache in (self._allowed, self._refused):
            until, review = cache.get(key, (0.0, None))
            if review is not None and self._clock() < until:
                return review
            cache.pop(key, None)
        return None

    async def _review(self, token: str) -> AccessReview:
        answer = await self._create(_AUTHENTICATION, "TokenReview", {"token": token})
        user = answer.get("user") or {}
        if not answer.get("authenticated"):
            return AccessReview(AccessVerdict.UNAUTHENTICATED)
        user_info = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups")}
        attributes = {**user_info, "extra": user.get("extra"), "nonResourceAttributes": {"verb": "get", "path": PATH}}
        spec = {name: value for name, value in attributes.items() if value}
        allowed = (await self._create(_AUTHORIZATION, "SubjectAccessReview", spec)).get("allowed")
        return AccessReview(AccessVerdict.ALLOWED if allowed else AccessVerdict.REFUSED, str(user.get("username")))

    async def _create(self, api_version: str, kind: str, spec: Object) -> Object:
        body = {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}
        answer = await self._request("POST", f"/apis/{api_version}/{kind.lower()}s", body=body)
        status: Object = answer.get("status") or {}
        return status


PATH = "/metrics"
Text: TypeAlias = Callable[[], Awaitable[bytes]]
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RULES = (
    "{apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]} and "
    "{apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}"
)
_log = log.get(__name__)


def unrestricted(text: Text) -> dict[str, Handler]:
    """Return the handler of `/metrics` for all clients."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=await text(), headers={"Content-Type": _TYPE})

    return {PATH: show}


def authorized(text: Text, reviews: AccessReviews) -> dict[str, Handler]:
    """Return the handler of `/metrics` for clients with a bearer token whose user may get this path."""
    show = unrestricted(text)[PATH]

    async def guarded(request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or not token.isascii():
            return _refusal(401, "bearer token required")
        try:
            review = await reviews.review(token.strip())
        except ForbiddenError as error:
            _log.warning(
                "Cannot authorize clients of metrics: the operator may not create token and access reviews",
                error=str(error),
                rules=_RULES,
            )
            return _refusal(500, "the operator may not review tokens; see its log")
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Cannot authorize a client of metrics: the API server is unavailable", error=str(error))
            return _refusal(503, "cannot review the token: the API server is unavailable")
        if review.verdict is AccessVerdict.UNAUTHENTICATED:
            return _refusal(401, "invalid token")
        if review.verdict is AccessVerdict.REFUSED:
            rule = "{nonResourceURLs: [/metrics], verbs: [get]}"
            return _refusal(403, f"{review.user} may not get {PATH}; add to its ClusterRole: {rule}")
        return await show(request)

    return {PATH: guarded}


def _refusal(status: int, why: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004 - the status that requires it
    return web.Response(status=status, text=f"{why}\n", headers=headers)
