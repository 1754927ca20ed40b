"""Error tree, and parts of messages. Every error that crosses the boundary of a package is one of these.

OperatorError
├── ConfigError            invalid input of the user; the process ends with exit code 2
├── ClusterError           the control plane on this machine could not be built, started or found
├── ApiError               the Kubernetes API server responded with an error (`status`, `reason`)
│   ├── UnauthorizedError  401: the credentials are not (or no longer) accepted
│   ├── ForbiddenError     403: RBAC or an admission plugin denies it
│   │   └── NamespaceTerminatingError
│   ├── NotFoundError      404
│   ├── KindNotFoundError  the API server does not serve this kind (yet), so that its objects are unknown
│   ├── ConflictError      409: the object changed meanwhile, or exists already
│   │   └── PatchTestError 422: a `test` of a JSON patch failed, so the object changed meanwhile
│   ├── GoneError          410: the resource version or continue token is too old
│   ├── InvalidError       422: the schema of the object, a webhook or a policy refuses it
│   ├── ThrottledError     429: the server requests a delay of `retry_after` seconds
│   └── ServerError        5xx
├── ApiUnavailableError    no usable response: refused, reset, timed out, TLS
├── NotKeptError           the requested run is not retained
├── EngineError            a run could not be prepared or started
├── RunDetachedError       a run continues in its pod, without this operator
├── PodWaitsError          a run waits for its pod, and needs no worker
├── LeaseLostError         another replica may have the object: this one writes nothing more
└── TerminalError          do not retry until the object changes

A message contains the problem, its place, and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable


class OperatorError(Exception):
    """Root of all errors of this package."""


class ConfigError(OperatorError):
    """Invalid input of the user. It may contain several problems, one per line."""


class ClusterError(OperatorError):
    """The local control plane could not be built, started or found."""


class ApiError(OperatorError):
    """An error response of the API server.

    `status` is the HTTP status code. `reason` is the reason of the `Status` object (API conventions, "Response Status
    Kind"), or `""` if the response was not a `Status`. `said` is the server's own message, without request and advice.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        retry_after: float | None = None,
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.said = said or message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class UnauthorizedError(ApiError):
    """401."""


class ForbiddenError(ApiError):
    """403."""


class NamespaceTerminatingError(ForbiddenError):
    """403: nothing can be created in a namespace that is being deleted."""


class NotFoundError(ApiError):
    """404 about an object: it does not exist."""


class KindNotFoundError(ApiError):
    """The API server does not serve this kind (yet). Nothing follows for its objects: they may exist."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class ConflictError(ApiError):
    """409."""


class PatchTestError(ConflictError):
    """422 of a JSON patch that does not fit the object, because another client changed it."""


class GoneError(ApiError):
    """410."""


class InvalidError(ApiError):
    """422."""


class ThrottledError(ApiError):
    """429; `retry_after` is the server's value in seconds, or None."""


class ServerError(ApiError):
    """5xx."""


class ApiUnavailableError(OperatorError):
    """The API server gave no usable response. `sent`: the request may have taken effect."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class EngineError(OperatorError):
    """A run could not be prepared or started."""


class RunDetachedError(OperatorError):
    """A run continues in its pod; another operator, or this one later, records its outcome."""


class PodWaitsError(OperatorError):
    """A run waits for its pod, and needs no worker until the pod has a node."""


class NotKeptError(OperatorError):
    """The requested run is not retained."""


class LeaseLostError(OperatorError):
    """Another replica may have the object, so this one stops writing about it."""


class TerminalError(OperatorError):
    """Retries are useless until the object changes."""


PASSING = (ApiUnavailableError, ServerError, ThrottledError, UnauthorizedError, KindNotFoundError)
"""Temporary errors: the API server is unavailable or busy, a token is about to be renewed, or a kind is not served.
Retry them."""


def meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `; did you mean X?` with the prefix before X; empty if no known name is similar."""
    import difflib  # noqa: PLC0415 - only for messages about mistakes

    close = difflib.get_close_matches(name, [*known], n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
