"""Responses of the API server, and failed connections: errors, delays, causes and warnings.

Source: the API conventions, "Response Status Kind", and RFC 9110 (`Retry-After`), RFC 7234 (`Warning`).
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from runner.base import log
from runner.core.kube import rights
from runner.values.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KindNotFoundError,
    NamespaceTerminatingError,
    NotFoundError,
    PatchTestError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
)
from runner.values.objects import mapping, maps

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
_LONGEST_RETRY_AFTER = 60.0
"""Seconds: a proxy in between may send any number."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_log = log.get(__name__)


def error(request: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Create the error of a response to `request` (`GET /api/v1/...`)."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict) or content.get("kind") != "Status":
        text = body[:_EXCERPT].decode(errors="replace").strip()
        content = {"message": text or "no message"}
        if status == HTTPStatus.NOT_FOUND:  # only a `Status` is about an object: this one is about the path
            return KindNotFoundError(f"{request}: {content['message']} (HTTP {status})")
    delay = headers.get("Retry-After", "")
    return of_status(request, {**content, "code": status}, float(delay) if delay.isdecimal() else None)


def of_status(request: str, status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """Create the error of a `Status` object, which an ERROR event of a watch also contains."""
    said = status.get("code")
    code = said if said and isinstance(said, int) else _SERVER_ERRORS
    kind = _BY_STATUS.get(code, ServerError if code >= _SERVER_ERRORS else ApiError)
    if kind is InvalidError and status.get("message") == _MISMATCH:
        kind = PatchTestError
    if kind is ForbiddenError and is_terminating(status):
        kind = NamespaceTerminatingError
    seconds = mapping(status.get("details")).get("retryAfterSeconds")
    if retry_after is None and seconds and isinstance(seconds, int):
        retry_after = float(seconds)
    if retry_after is not None:
        retry_after = min(retry_after, _LONGEST_RETRY_AFTER)
    text = str(status.get("message") or status.get("reason") or "no message")
    message = f"{request}: {text} (HTTP {code}){_advice(code, text)}"
    return kind(message, status=code, reason=str(status.get("reason") or ""), retry_after=retry_after, said=text)


def is_terminating(status: Mapping[str, Any]) -> bool:
    """Return True if a request was refused because its namespace is being deleted.

    Source: the cause in the response of the admission plugin
    (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle).
    """
    causes = maps(mapping(status.get("details")).get("causes"))
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _advice(code: int, text: str) -> str:
    """Return the remedy for an error, if its code and message identify one."""
    if code == HTTPStatus.UNAUTHORIZED:
        return "; check that the credentials are valid and not expired"
    missing = rights.read(text) if code == HTTPStatus.FORBIDDEN else None
    if missing is None:
        return ""
    return f"{rights.ADVICE}{rights.where(missing)}: {rights.rule(missing, [missing.verb])}"


class Warnings:
    """Log of the API server's warnings, each once."""

    def __init__(self) -> None:
        self._logged = log.Once()

    def note(self, request: str, headers: Iterable[str]) -> None:
        """Log the new `Warning` headers of a response to `request`."""
        for header in headers:
            for text in _WARNING.findall(header):
                if self._logged.is_new(text):
                    _log.warning("Warning from the API server", warning=text, request=request)


_NETWORK = "check the network, firewalls, and the proxy variables of the environment"


def cause(error: BaseException) -> str:
    """Return why a connection failed, without types and representations of Python."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            text = _certificate(error.certificate_error)
        case aiohttp.ClientConnectorDNSError():
            text = "the host name cannot be resolved"
        case aiohttp.ClientProxyConnectionError():
            text = f"no connection to the proxy: {_system(error.os_error)}"
        case aiohttp.ClientConnectorError():
            text = _certificate(error.os_error) if isinstance(error.os_error, ssl.SSLError) else _system(error.os_error)
        case aiohttp.ServerDisconnectedError():
            text = "the server closed the connection"
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy rejects the connection: {error.message} (HTTP {error.status})"
        case OSError():
            text = _system(error)
        case _:
            text = str(error) or type(error).__name__
    return text


def advice(error: BaseException | None) -> str:
    """Return the next step after a failed connection."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "check the server's address and certificate-authority in the credentials"
        case aiohttp.ClientConnectorDNSError():
            return "check the server's address in the credentials, and the DNS"
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return "check proxy-url in the credentials, and the proxy variables of the environment"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return "check that the API server runs, and the server's address in the credentials"
        case None:
            return "see the error"
        case _:
            return _NETWORK


def _certificate(error: Exception) -> str:
    verification = getattr(error, "verify_message", "")
    return f"the certificate is not accepted: {verification or getattr(error, 'reason', '') or error}"


def _system(error: OSError) -> str:
    """Return the system's text: asyncio replaces it by one with a tuple of Python."""
    if isinstance(error, socket.gaierror) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno).lower()
