"""Meaning of the answer to a request of the operator itself, and what follows. Pure.

The table has a row for each kind of request. docs/refusals.md contains it. `make refusals` proves it cell by cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from runner.values.errors import PASSING, ApiError, ApiUnavailableError, ConflictError, NotFoundError


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
    Meaning.TEMPORARY: "401, 429, 5xx, connections that could not be opened, and kinds that are not served",
    Meaning.CONFLICT: "409, and 422 if a `test` of a JSON patch failed: another client changed the object first",
    Meaning.ABSENT: "404 about the object",
    Meaning.UNKNOWN: "the connection was lost after the request was sent, so that it may have taken effect",
}


class Request(Enum):
    """Kind of request that the operator itself makes."""

    START = "version of the API server, at the start"
    ACCOUNT = "service accounts of watches, and the operator's own name, at the start"
    AUTHORITY = "certificate authority of runs in pods, at the start"
    RIGHTS = "review of the operator's rights and identities"
    DISCOVERY = "discovery of a kind"
    WATCH = "list and watch of a kind, also of dependents, references and pods"
    RELATED = "read of a dependent, a reference or an object outside the selection"
    OWNER = "check that the object still exists"
    READ = "other reads before a run"
    LENT = "Secret with credentials of hosts, before a run"
    FINALIZER_ADDED = "addition of the finalizer"
    FINALIZER_REMOVED = "removal of the finalizer"
    RUNNING = "condition `Running` at the start of a run"
    STATUS = "status"
    EVENT = "Event"
    PLAN = "ConfigMap of a plan"
    AFTERWARDS = "annotation of the last run, records of created objects, and prune"
    ROLLOUT = "ConfigMap of a rollout"
    KINDS = "ConfigMap with the kinds of dependents"
    LEASE = "Lease of the leader"
    METRICS = "review of a client of the metrics"
    PROXY = "lookup of the proxy for a request of a run"
    POD_CREATED = "creation of the Secret and Job of a run"
    POD_DELETED = "deletion of the Secret and Job of a run"
    POD_REST = "warm pod, its label, and the reason why a Job has no pod or a pod is not ready"


class Follow(Enum):
    """Reaction to an answer."""

    REPORT = "reported in the condition `RequestRefused` and an Event, and retried after 1 s to 10 min"
    OMIT = "omitted, with one log line for each reason"
    PROCEED = "omitted, with one log line; the run takes place"
    KEEP = "kept, reported in the log, and written after 1 s to 10 min"
    LATER = "kept without a worker, and written when the API server accepts it"
    RETRY = "retried after 1 s to 1 min, with jitter"
    REPEAT = "logged, and repeated within seconds, with jitter, until the API server answers"
    READ_AGAIN = "the object is read again, and the operator decides again"
    READ_FIRST = "repeated after 1 s to 1 min; the patch has no effect unless the object is as it was read"
    GONE = "the object is read again; if it does not exist, nothing is left to do"
    ABSENT = "counts as an answer: the object does not exist"
    REOPEN = "logged, and opened again after 0.1 s to 10 s, with jitter; the cached objects stay"
    REDISCOVER = "the kind is discovered again; the cached objects stay until it is listed again"
    DROP = "dropped and counted in `ansible_operator_events_dropped_total`"
    NEXT_RUN = "logged, and repeated after the next run; the result of the run stays"
    SAVE_LATER = "logged once, and saved again within 10 min; dependents are watched nevertheless"
    EXPIRE = "logged, and repeated until the lease duration ends; then the replica stops its runs"
    UNAVAILABLE = "logged; the client of the metrics gets 503, or 500 if the operator lacks the right"
    FORWARD = "logged once; the proxy forwards the request without an owner"
    RETURN = "the run gets 503 from the proxy, and its modules or the next run repeat the request"
    FAIL = "the run fails with the message of the API server, and is retried like any failed run"
    EXIT = (
        "the operator exits with the error, and Kubernetes restarts it; also if what the request needs does not exist"
    )


def _each(
    refused: Follow, temporary: Follow, conflict: Follow, absent: Follow, unknown: Follow
) -> Mapping[Meaning, Follow]:
    return MappingProxyType(dict(zip(Meaning, (refused, temporary, conflict, absent, unknown), strict=True)))


def _all(follow: Follow) -> Mapping[Meaning, Follow]:
    return _each(follow, follow, follow, follow, follow)


_F = Follow
FOLLOWS: Mapping[Request, Mapping[Meaning, Follow]] = MappingProxyType(
    {
        Request.START: _all(_F.REPEAT),
        Request.ACCOUNT: _each(_F.OMIT, _F.REPEAT, _F.OMIT, _F.ABSENT, _F.REPEAT),
        Request.AUTHORITY: _each(_F.EXIT, _F.REPEAT, _F.REPEAT, _F.ABSENT, _F.REPEAT),
        Request.RIGHTS: _each(_F.OMIT, _F.REPEAT, _F.OMIT, _F.OMIT, _F.REPEAT),
        Request.DISCOVERY: _all(_F.RETRY),
        Request.WATCH: _each(_F.REOPEN, _F.REOPEN, _F.REOPEN, _F.REDISCOVER, _F.REOPEN),
        Request.RELATED: _each(_F.OMIT, _F.REPEAT, _F.REPEAT, _F.GONE, _F.REPEAT),
        Request.OWNER: _each(_F.PROCEED, _F.RETRY, _F.READ_AGAIN, _F.RETRY, _F.RETRY),
        Request.READ: _each(_F.REPORT, _F.RETRY, _F.READ_AGAIN, _F.RETRY, _F.RETRY),
        Request.LENT: _each(_F.REPORT, _F.RETRY, _F.READ_AGAIN, _F.ABSENT, _F.RETRY),
        Request.FINALIZER_ADDED: _each(_F.REPORT, _F.RETRY, _F.READ_AGAIN, _F.RETRY, _F.READ_FIRST),
        Request.FINALIZER_REMOVED: _each(_F.REPORT, _F.RETRY, _F.READ_AGAIN, _F.GONE, _F.READ_FIRST),
        Request.RUNNING: _each(_F.KEEP, _F.RETRY, _F.READ_AGAIN, _F.GONE, _F.READ_FIRST),
        Request.STATUS: _each(_F.KEEP, _F.LATER, _F.READ_AGAIN, _F.GONE, _F.LATER),
        Request.EVENT: _all(_F.DROP),
        Request.PLAN: _each(_F.OMIT, _F.RETRY, _F.OMIT, _F.OMIT, _F.RETRY),
        Request.AFTERWARDS: _all(_F.NEXT_RUN),
        Request.ROLLOUT: _each(_F.REPORT, _F.RETRY, _F.READ_AGAIN, _F.RETRY, _F.RETRY),
        Request.KINDS: _each(_F.SAVE_LATER, _F.REPEAT, _F.REPEAT, _F.SAVE_LATER, _F.REPEAT),
        Request.LEASE: _each(_F.EXPIRE, _F.EXPIRE, _F.READ_AGAIN, _F.READ_AGAIN, _F.EXPIRE),
        Request.METRICS: _all(_F.UNAVAILABLE),
        Request.PROXY: _each(_F.FORWARD, _F.RETURN, _F.FORWARD, _F.FORWARD, _F.RETURN),
        Request.POD_CREATED: _each(_F.FAIL, _F.RETRY, _F.READ_AGAIN, _F.FAIL, _F.RETRY),
        Request.POD_DELETED: _each(_F.REPEAT, _F.REPEAT, _F.REPEAT, _F.ABSENT, _F.REPEAT),
        Request.POD_REST: _all(_F.OMIT),
    }
)
"""Reaction for each kind of request and each meaning, in the order of `Meaning`."""


def meaning(error: ApiError | ApiUnavailableError) -> Meaning:
    """Return the meaning of an error."""
    if isinstance(error, ConflictError):
        return Meaning.CONFLICT
    if isinstance(error, NotFoundError):
        return Meaning.ABSENT
    if isinstance(error, ApiUnavailableError) and error.sent:
        return Meaning.UNKNOWN
    return Meaning.TEMPORARY if isinstance(error, PASSING) else Meaning.REFUSED


def follow(request: Request, error: ApiError | ApiUnavailableError) -> Follow:
    """Return what follows an error of a request."""
    return FOLLOWS[request][meaning(error)]
