"""What the answers to requests of the operator mean."""

from __future__ import annotations

import pytest

from runner.core.kube import answers
from runner.core.kube.meaning import FOLLOWS, Meaning, Request, meaning
from runner.values.errors import ApiError, ApiUnavailableError, KindNotFoundError

_MISMATCH = "the server rejected our request due to an error in our request"
_POLICY = "things \"one\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (400, "bad", Meaning.REFUSED),
        (401, "who", Meaning.TEMPORARY),
        (403, "no right", Meaning.REFUSED),
        (404, "not found", Meaning.ABSENT),
        (409, "the object has been modified", Meaning.CONFLICT),
        (413, "too large", Meaning.REFUSED),
        (422, _POLICY, Meaning.REFUSED),
        (422, 'Thing "one" is invalid: spec: Required value', Meaning.REFUSED),
        (422, _MISMATCH, Meaning.CONFLICT),
        (429, "busy", Meaning.TEMPORARY),
        (500, "etcd", Meaning.TEMPORARY),
        (503, "starting", Meaning.TEMPORARY),
    ],
)
def test_the_status_and_message_of_an_answer_decide_what_it_means(code: int, message: str, expected: Meaning) -> None:
    error = answers.of_status("PATCH /apis/x", {"kind": "Status", "code": code, "message": message})
    assert isinstance(error, ApiError)
    assert error.status == code
    assert meaning(error) is expected


def test_an_answer_with_values_of_another_type_is_an_error_too() -> None:
    odd = {"kind": "Status", "code": "many", "message": ["odd"], "details": {"retryAfterSeconds": "soon"}}
    error = answers.of_status("watch of /apis/x", odd)
    assert (error.status, error.retry_after, meaning(error)) == (500, None, Meaning.TEMPORARY)
    assert answers.error("GET /x", 503, {"Retry-After": "²"}, b"").retry_after is None


@pytest.mark.parametrize("seconds", ["86400", "9" * 400])
def test_a_server_delays_no_request_for_more_than_a_minute(seconds: str) -> None:
    assert answers.error("GET /x", 503, {"Retry-After": seconds}, b"").retry_after == 60.0
    status = {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": int(seconds[:18])}}
    assert answers.of_status("GET /x", status).retry_after == 60.0


def test_only_a_connection_that_was_lost_after_the_request_leaves_its_outcome_unknown() -> None:
    assert meaning(ApiUnavailableError("reset", sent=True)) is Meaning.UNKNOWN
    assert meaning(ApiUnavailableError("refused", sent=False)) is Meaning.TEMPORARY
    assert meaning(KindNotFoundError("no such kind")) is Meaning.TEMPORARY


def test_the_table_decides_for_each_request_and_each_meaning() -> None:
    assert set(FOLLOWS) == set(Request)
    assert all(set(of_request) == set(Meaning) for of_request in FOLLOWS.values())
