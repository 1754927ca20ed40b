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
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from runner.objects import Object

_ALLOWED_FOR, _REFUSED_FOR = 60.0, 10.0
_MOST = 1024
"""Maximum number of cached permissions, and of cached refusals."""
_AT_ONCE = 16
"""Maximum number of concurrent calls."""
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"


class ReviewClient(Protocol):
    """Client methods that reviews use."""

    async def request(self, method: str, path: str, *, body: object) -> Object:
        """Send one request and return the object in the response."""
        ...


class AccessVerdict(Enum):
    """Result of a review."""

    ALLOWED = "allowed"
    STRANGER = "the token is no good"
    REFUSED = "may not"


@dataclass(frozen=True, slots=True)
class AccessReview:
    """A result and the user."""

    verdict: AccessVerdict
    user: str = ""


_Key: TypeAlias = tuple[bytes, str, str]
_Known: TypeAlias = OrderedDict[_Key, tuple[float, AccessReview]]


class AccessReviews:
    """Cache of reviews. Errors are those of the client."""

    def __init__(self, client: ReviewClient, clock: Callable[[], float]) -> None:
        """`clock` counts seconds."""
        self._client = client
        self._clock = clock
        self._allowed: _Known = OrderedDict()
        self._refused: _Known = OrderedDict()
        self._asking = [asyncio.Lock() for _ in range(_AT_ONCE)]

    async def judge(self, token: str, verb: str, path: str) -> AccessReview:
        """Review if the bearer of this token may use this verb on a non-resource path."""
        key = (hashlib.sha256(token.encode()).digest(), verb, path)
        known = self._remembered(key)
        if known is not None:
            return known
        async with self._asking[key[0][0] % _AT_ONCE]:  # those who come together with a token wait for one answer
            known = self._remembered(key)
            if known is not None:
                return known
            ruling = await self._ask(token, verb, path)
            if ruling.verdict is AccessVerdict.ALLOWED:
                cache, lasting = self._allowed, _ALLOWED_FOR
            else:
                cache, lasting = self._refused, _REFUSED_FOR
            cache[key] = (self._clock() + lasting, ruling)
            if len(cache) > _MOST:
                cache.popitem(last=False)
        return ruling

    def _remembered(self, key: _Key) -> AccessReview | None:
        for cache in (self._allowed, self._refused):
            until, ruling = cache.get(key, (0.0, None))
            if ruling is not None and self._clock() < until:
                return ruling
            cache.pop(key, None)
        return None

    async def _ask(self, token: str, verb: str, path: str) -> AccessReview:
        found = await self._review(_AUTHENTICATION, "TokenReview", {"token": token})
        user = found.get("user") or {}
        if not found.get("authenticated"):
            return AccessReview(AccessVerdict.STRANGER)
        who = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups")}
        attributes = {**who, "extra": user.get("extra"), "nonResourceAttributes": {"verb": verb, "path": path}}
        spec = {name: value for name, value in attributes.items() if value}
        allowed = (await self._review(_AUTHORIZATION, "SubjectAccessReview", spec)).get("allowed")
        return AccessReview(AccessVerdict.ALLOWED if allowed else AccessVerdict.REFUSED, str(user.get("username")))

    async def _review(self, api_version: str, kind: str, spec: Object) -> Object:
        body = {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}
        answer = await self._client.request("POST", f"/apis/{api_version}/{kind.lower()}s", body=body)
        status: Object = answer.get("status") or {}
        return status
