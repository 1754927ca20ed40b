"""Shows metrics over HTTP, to everybody or to those alone whom the API server lets read them.

Owns: the questions and answers of HTTP, and what is said when the API server cannot be asked. What is shown is
rendered elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from runner import log
from runner.errors import ApiError, ApiUnavailableError, ForbiddenError
from runner.kube.reviews import Reviews, Verdict
from runner.monitoring.endpoints import Handler

PATH = "/metrics"
Text: TypeAlias = Callable[[], Awaitable[bytes]]
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RULES = (
    "{apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]} and "
    "{apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}"
)
_log = log.get(__name__)


def open_to_all(text: Text) -> dict[str, Handler]:
    """Handler of `/metrics`."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=await text(), headers={"Content-Type": _TYPE})

    return {PATH: show}


def for_readers(text: Text, reviews: Reviews) -> dict[str, Handler]:
    """Handler of `/metrics` for those who show a token of somebody who may get this path."""
    show = open_to_all(text)[PATH]

    async def guarded(request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _refusal(401, "a bearer token is needed")
        try:
            ruling = await reviews.judge(token.strip(), "get", PATH)
        except ForbiddenError as error:
            _log.warning("Nobody can read metrics, as the operator may not ask who may", error=str(error), rules=_RULES)
            return _refusal(500, "the operator may not ask the API server who you are")
        except (ApiError, ApiUnavailableError) as error:
            _log.warning("Metrics were not shown: the API server cannot be asked who may read them", error=str(error))
            return _refusal(503, "the API server cannot be asked who you are")
        if ruling.verdict is Verdict.STRANGER:
            return _refusal(401, "the API server does not know this token")
        if ruling.verdict is Verdict.REFUSED:
            rule = "{nonResourceURLs: [/metrics], verbs: [get]}"
            return _refusal(403, f"{ruling.user} may not get {PATH}; add to its ClusterRole: {rule}")
        return await show(request)

    return {PATH: guarded}


def _refusal(status: int, why: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004 - the status that asks for it
    return web.Response(status=status, text=f"{why}\n", headers=headers)
