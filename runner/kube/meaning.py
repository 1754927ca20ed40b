"""Meaning of the answer to a request of the operator itself, and what follows. Pure.

One table decides for the requests of a reconcile about its object. docs/troubleshooting.md contains it.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from runner.errors import PASSING, ApiError, ApiUnavailableError, ConflictError, KindNotFoundError, NotFoundError


class Meaning(Enum):
    """Meaning of an answer that is not a success."""

    REFUSED = "refused"
    TEMPORARY = "temporary"
    CONFLICT = "conflict"
    ABSENT = "not found"
    UNKNOWN = "unknown outcome"

    @property
    def answers(self) -> str:
        """Description of the answers with this meaning."""
        return _ANSWERS[self]


_ANSWERS = {
    Meaning.REFUSED: "403, 413, 422 and other 4xx: rights, a schema, a webhook or a policy",
    Meaning.TEMPORARY: "401, 429 and 5xx, and connections that could not be opened",
    Meaning.CONFLICT: "409, and 422 if a `test` of a JSON patch failed: another client changed the object first",
    Meaning.ABSENT: "404, and kinds that the API server does not serve",
    Meaning.UNKNOWN: "the connection was lost after the request was sent, so that it may have taken effect",
}


class Request(Enum):
    """Kind of request about one object."""

    READ = "reads before a run"
    FINALIZER_ADDED = "addition of the finalizer"
    FINALIZER_REMOVED = "removal of the finalizer"
    STATUS = "status"
    PLAN = "ConfigMap of a plan"


class Follow(Enum):
    """Reaction to an answer."""

    REPORT = "reported in the condition `RequestRefused` and an Event, and retried after 1 s to 10 min"
    OMIT = "omitted, with one log line for each reason; the status contains the plan"
    KEEP = "kept, reported in the log, and written after 1 s to 10 min"
    RETRY = "retried after 1 s to 1 min, with jitter"
    REPEAT = "repeated by the worker until the API server answers, with jitter"
    READ_AGAIN = "the object is read again, and the operator decides again"
    READ_FIRST = "repeated after 1 s to 1 min; the patch has no effect unless the object is as it was read"
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
        Request.PLAN: {
            Meaning.REFUSED: Follow.OMIT,
            Meaning.TEMPORARY: Follow.RETRY,
            Meaning.CONFLICT: Follow.OMIT,
            Meaning.ABSENT: Follow.OMIT,
            Meaning.UNKNOWN: Follow.RETRY,
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
"""Reaction for each kind of request and each meaning."""


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
