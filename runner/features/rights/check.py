"""Check of the operator's rights at start, by SelfSubjectAccessReviews, which every account may create.

Logs one warning per resource with the missing verbs and the rule to add. Nothing waits for the check, and it stops
nothing: requests without a right fail by themselves, and succeed once the right is granted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from runner.base import log
from runner.core.kube import forbidden
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.rights import Right
from runner.values.errors import PASSING, ApiError, ApiUnavailableError
from runner.values.objects import GVK

_AT_ONCE = 4
_AGAIN = 5.0
"""Seconds before the next check if a kind is not served yet, or if the API server is unavailable."""
_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_MAY = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_log = log.get(__name__)


class RightsCheck:
    """Checks rights; `learn` receives all rights that are required."""

    def __init__(self, client: Client, discovery: Discovery, learn: Callable[[Iterable[Right]], None]) -> None:
        self._client = client
        self._discovery = discovery
        self._learn = learn
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def kind(self, gvk: GVK, needs: Callable[[ApiResource], set[Right]]) -> None:
        """Check a kind once it is served. `needs` returns the rights for its resource."""
        while True:
            try:
                resource = await self._discovery.find(gvk)
            except (ApiError, ApiUnavailableError):
                await asyncio.sleep(_AGAIN)
                continue
            await self.check(needs(resource))
            return

    async def check(self, needed: set[Right]) -> None:
        """Check rights, and log the missing ones by resource."""
        self._learn(needed)
        while True:
            try:
                lacking = await asyncio.gather(*(self._lacks(right) for right in sorted(needed)))
                missing = [right for right, lacks in zip(sorted(needed), lacking, strict=True) if lacks]
                user = await self._user() if missing else ""
            except PASSING:
                await asyncio.sleep(_AGAIN)
                continue
            except ApiError as error:
                _log.warning("Cannot check the operator's rights", error=str(error))
                return
            break
        for sentence in forbidden.sentences(right.missing(user) for right in missing):
            _log.warning("The operator lacks a right; add the rule", problem=sentence)

    async def _lacks(self, right: Right) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": right.attributes()}
        async with self._turns:
            answer = await self._client.request("POST", _MAY, body=body)
        return not (answer.get("status") or {}).get("allowed")

    async def _user(self) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = await self._client.request("POST", _SELF_REVIEWS, body=body)
        except ApiError:
            return "the operator"
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "the operator")
