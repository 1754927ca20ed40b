"""Responses of the API server: errors, delays and warnings. Pure, except for the log of warnings.

Source: the API conventions, "Response Status Kind", and RFC 9110 (`Retry-After`), RFC 7234 (`Warning`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import orjson

from runner import log
from runner.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    PatchTestError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
)
from runner.kube import forbidden

_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: ThrottledError,
}
_SERVER_ERRORS = 500
_MISMATCH = "the server rejected our request due to an error in our request"
"""Message of the API server if a JSON patch does not fit the object. A 422 for another reason has another message."""
_EXCERPT = 200
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_log = log.get(__name__)


def error(what: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Create the error of a response to `what` (`GET /api/v1/...`)."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != "Status":
        text = body[:_EXCERPT].decode(errors="replace").strip()
        found = {"message": text or "no message"}
    delay = headers.get("Retry-After", "")
    return of_status(what, {**found, "code": status}, float(delay) if delay.isdigit() else None)


def of_status(what: str, status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """Create the error of a `Status` object, which an ERROR event of a watch also contains."""
    code = int(status.get("code") or _SERVER_ERRORS)
    kind = _BY_STATUS.get(code, ServerError if code >= _SERVER_ERRORS else ApiError)
    if kind is InvalidError and status.get("message") == _MISMATCH:
        kind = PatchTestError
    if kind is ForbiddenError and forbidden.terminating(status):
        kind = NamespaceTerminatingError
    details = status.get("details")
    if retry_after is None and isinstance(details, dict) and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    text = str(status.get("message") or status.get("reason") or "no message")
    message = f"{what}: {text} (HTTP {code}){_advice(code, text)}"
    return kind(message, status=code, reason=str(status.get("reason") or ""), retry_after=retry_after)


def _advice(code: int, text: str) -> str:
    """Return the remedy for an error, if its code and message identify one."""
    if code == HTTPStatus.UNAUTHORIZED:
        return "; check that the credentials are valid and not expired"
    missing = forbidden.read(text) if code == HTTPStatus.FORBIDDEN else None
    if missing is None:
        return ""
    return f"; add to the operator's {forbidden.where(missing)}: {forbidden.rule(missing, [missing.verb])}"


class Warnings:
    """Log of the API server's warnings, each once."""

    def __init__(self) -> None:
        self._logged = log.Once()

    def note(self, what: str, headers: Iterable[str]) -> None:
        """Log the new `Warning` headers of a response to `what`."""
        for header in headers:
            for text in _WARNING.findall(header):
                if self._logged.is_new(text):
                    _log.warning("Warning from the API server", warning=text, request=what)
