"""Authentication and authorization of clients by their token, through the API server.

Owns: a short cache of the results, so that a scrape every few seconds costs no call each. Tokens are stored as digests.
A permission is cached for a minute, a refusal for ten seconds. Refusals have a cache of their own: a client that sends
many invalid tokens does not remove permissions. Source:
https://kubernetes.io/docs/reference/access-authn-authz/webhook/.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from runner.base.config.settings import Settings
from runner.core.kube.rights import RequiredRights, Right, granting
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


_Key: TypeAlias = tuple[bytes, str, str]
_Known: TypeAlias = OrderedDict[_Key, tuple[float, AccessReview]]


class AccessReviews:
    """Cache of reviews. Errors are those of the client."""

    def __init__(self, request: Callable[..., Awaitable[Object]], clock: Callable[[], float]) -> None:
        """`request` is that of a client; `clock` counts seconds."""
        self._request = request
        self._clock = clock
        self._allowed: _Known = OrderedDict()
        self._refused: _Known = OrderedDict()
        self._locks = [asyncio.Lock() for _ in range(_AT_ONCE)]

    async def review(self, token: str, verb: str, path: str) -> AccessReview:
        """Review if the bearer of this token may use this verb on a non-resource path."""
        key = (hashlib.sha256(token.encode()).digest(), verb, path)
        known = self._cached(key)
        if known is not None:
            return known
        async with self._locks[key[0][0] % _AT_ONCE]:  # concurrent requests with a token share one review
            known = self._cached(key)
            if known is not None:
                return known
            review = await self._review(token, verb, path)
            if review.verdict is AccessVerdict.ALLOWED:
                cache, lasting = self._allowed, _ALLOWED_FOR
            else:
                cache, lasting = self._refused, _REFUSED_FOR
            cache[key] = (self._clock() + lasting, review)
            if len(cache) > _MOST:
                cache.popitem(last=False)
        return review

    def _cached(self, key: _Key) -> AccessReview | None:
        for cache in (self._allowed, self._refused):
            until, review = cache.get(key, (0.0, None))
            if review is not None and self._clock() < until:
                return review
            cache.pop(key, None)
        return None

    async def _review(self, token: str, verb: str, path: str) -> AccessReview:
        answer = await self._create(_AUTHENTICATION, "TokenReview", {"token": token})
        user = answer.get("user") or {}
        if not answer.get("authenticated"):
            return AccessReview(AccessVerdict.UNAUTHENTICATED)
        user_info = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups")}
        attributes = {**user_info, "extra": user.get("extra"), "nonResourceAttributes": {"verb": verb, "path": path}}
        spec = {name: value for name, value in attributes.items() if value}
        allowed = (await self._create(_AUTHORIZATION, "SubjectAccessReview", spec)).get("allowed")
        return AccessReview(AccessVerdict.ALLOWED if allowed else AccessVerdict.REFUSED, str(user.get("username")))

    async def _create(self, api_version: str, kind: str, spec: Object) -> Object:
        body = {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}
        answer = await self._request("POST", f"/apis/{api_version}/{kind.lower()}s", body=body)
        status: Object = answer.get("status") or {}
        return status


def _rights(settings: Settings, *_: object) -> set[Right]:
    """Return the rights to authorize readers of metrics."""
    if not settings.metrics_require_rbac:
        return set()
    return granting([""], "authentication.k8s.io", "tokenreviews", "create") | granting(
        [""], "authorization.k8s.io", "subjectaccessreviews", "create"
    )


RIGHTS = RequiredRights(of_operator=_rights)
