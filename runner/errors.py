"""The whole error tree; every error that crosses a room's border is one of these.

OperatorError
├── ConfigError            what the user wrote cannot be used; the process ends with exit code 2
├── ClusterError           the control plane on this machine could not be built, started or found
├── ApiError               the Kubernetes API server answered with an error (`status`, `reason`)
│   ├── UnauthorizedError  401: the credentials are not (or no longer) accepted
│   ├── ForbiddenError     403: RBAC denies it
│   ├── NotFoundError      404
│   ├── ConflictError      409: the object changed meanwhile, or exists already
│   ├── GoneError          410: the resource version or continue token is too old
│   ├── InvalidError       422: the object is refused by its schema or a patch's test failed
│   ├── ThrottledError     429: `retry_after` seconds are asked for
│   └── ServerError        5xx
├── ApiUnavailableError    no usable answer at all: refused, reset, timed out, TLS
├── KindNotFoundError      the API server does not serve this kind (yet)
├── NotKeptError           nothing is kept of the run that was asked for
├── EngineError            a run could not be prepared or started
├── LeaseLostError         the object may be another replica's now: nothing more is written about it
└── TerminalError          do not retry until the object changes

A message says what was wrong, where, and what to do about it.
"""

from __future__ import annotations


class OperatorError(Exception):
    """Root of all errors of this package."""


class ConfigError(OperatorError):
    """What the user wrote cannot be used. May hold several problems, a line each."""


class ClusterError(OperatorError):
    """The control plane on this machine could not be built, started or found."""


class ApiError(OperatorError):
    """The API server answered with an error.

    `status` is the HTTP status code, `reason` the `Status` object's reason (`""` where the answer was no
    `Status`), see the API conventions, "Response Status Kind".
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class UnauthorizedError(ApiError):
    """401."""


class ForbiddenError(ApiError):
    """403."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409."""


class GoneError(ApiError):
    """410."""


class InvalidError(ApiError):
    """422."""


class ThrottledError(ApiError):
    """429; `retry_after` is the server's wish in seconds, or None."""


class ServerError(ApiError):
    """5xx."""


class ApiUnavailableError(OperatorError):
    """The API server gave no usable answer."""


class KindNotFoundError(OperatorError):
    """The API server does not serve this kind (yet)."""


class EngineError(OperatorError):
    """A run could not be prepared or started."""


class NotKeptError(OperatorError):
    """Nothing is kept of the run that was asked for."""


class LeaseLostError(OperatorError):
    """The object may be another replica's now: nothing more is written about it."""


class TerminalError(OperatorError):
    """Retrying is useless until the object changes."""


PASSING = (ApiUnavailableError, ServerError, ThrottledError, UnauthorizedError)
"""What ends by itself: the API server is away or busy, or a token is about to be renewed. Worth another attempt."""
