"""Meaning of the answer to a request of the operator itself, and what follows. Pure.

One table decides for all requests about an object. The page docs/refusals.md contains it for on-call engineers.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from runner.errors import PASSING, ApiError, ApiUnavailableError, ConflictError, KindNotFoundError, NotFoundError


class Meaning(Enum):
    """Meaning of an answer that is not a success."""

    REFUSED = "refused"
    """403, 413, 422 and other 4xx: rights, a schema, a webhook or a policy. A repetition has the same answer."""
    TEMPORARY = "temporary"
    """401, 429 and 5xx, and connections that could not be opened."""
    CONFLICT = "conflict"
    """409, and a JSON patch whose `test` failed: another client changed the object first."""
    ABSENT = "not found"
    """404, and kinds that the API server does not serve."""
    UNKNOWN = "unknown outcome"
    """The connection was lost after the request was sent, so that it may have taken effect."""


class Request(Enum):
    """Kind of request about one object."""

    READ = "read"
    FINALIZER_ADDED = "addition of the finalizer"
    FINALIZER_REMOVED = "removal of the finalizer"
    STATUS = "status"


class Follow(Enum):
    """What follows an answer."""

    REPORT = "reported in the condition `RequestRefused` and an Event, and retried after 1 s to 10 min"
    KEEP = "kept, reported in the log, and written after 1 s to 10 min"
    RETRY = "retried after 1 s to 1 min, with jitter"
    REPEAT = "repeated by the worker until the API server answers, with jitter"
    READ_AGAIN = "the object is read again, and the decision is made anew"
    READ_FIRST = "the object is read before the repetition"
    GONE = "the object is read again; if it does not exist, nothing is left to do"


_RETRIED = {
    Meaning.REFUSED: Follow.REPORT,
    Meaning.TEMPORARY: Follow.RETRY,
    Meaning.CONFLICT: Follow.READ_AGAIN,
    Meaning.ABSENT: Follow.RETRY,
    Meaning.UNKNOWN: Follow.RETRY,
}
FOLLOWS = MappingProxyType(
    {
        Request.READ: _RETRIED,
        Request.FINALIZER_ADDED: {**_RETRIED, Meaning.UNKNOWN: Follow.READ_FIRST},
        Request.FINALIZER_REMOVED: {
            **_RETRIED,
            Meaning.ABSENT: Follow.GONE,
            Meaning.UNKNOWN: Follow.READ_FIRST,
        },
        Request.STATUS: {
            Meaning.REFUSED: Follow.KEEP,
            Meaning.TEMPORARY: Follow.REPEAT,
            Meaning.CONFLICT: Follow.READ_AGAIN,
            Meaning.ABSENT: Follow.GONE,
            Meaning.UNKNOWN: Follow.READ_FIRST,
        },
    }
)
"""What follows, for each kind of request and each meaning."""


def meaning(error: ApiError | ApiUnavailableError | KindNotFoundError) -> Meaning:
    """Return the meaning of an error."""
    if isinstance(error, ConflictError):
        return Meaning.CONFLICT
    if isinstance(error, NotFoundError | KindNotFoundError):
        return Meaning.ABSENT
    if isinstance(error, ApiUnavailableError) and error.sent:
        return Meaning.UNKNOWN
    return Meaning.TEMPORARY if isinstance(error, PASSING) else Meaning.REFUSED


def follow(request: Request, error: ApiError | ApiUnavailableError | KindNotFoundError) -> Follow:
    """Return what follows an error of a request."""
    return FOLLOWS[request][meaning(error)]
