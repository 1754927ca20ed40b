"""Handlers of `/metrics`: for all clients, or for those whose user may read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from runner.base import log
from runner.base.monitoring.endpoints import Handler
from runner.core.kube.reviews import AccessReviews, AccessVerdict
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError

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
        if scheme.lower() != "bearer" or not token.strip():
            return _refusal(401, "bearer token required")
        try:
            review = await reviews.review(token.strip(), "get", PATH)
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
