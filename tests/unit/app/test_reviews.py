"""Reviews of tokens and access by the API server, and how long their answers are cached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from runner.app.metrics_access import PATH, AccessReview, AccessReviews, AccessVerdict, authorized
from runner.values.errors import ApiUnavailableError

USER = {"username": "system:serviceaccount:a:b", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}


@dataclass
class Server:
    """Knows the token `good`."""

    allowed: bool = True
    away: bool = False
    now: float = 0.0
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def request(self, method: str, path: str, *, body: Any) -> dict[str, Any]:
        assert method == "POST"
        await asyncio.sleep(0)
        if self.away:
            raise ApiUnavailableError("away")
        self.requests.append((path.rpartition("/")[2], body["spec"]))
        if path.endswith("tokenreviews"):
            known = body["spec"]["token"] == "good"
            return {"status": {"authenticated": known, "user": USER if known else {}}}
        return {"status": {"allowed": self.allowed}}

    def reviews(self) -> AccessReviews:
        return AccessReviews(self.request, lambda: self.now)


async def judged(reviews: AccessReviews, shown: str = "good") -> AccessReview:
    return await reviews.review(shown)


async def test_a_token_is_reviewed_first_and_then_the_access_of_its_user() -> None:
    server = Server()
    assert await judged(server.reviews()) == AccessReview(AccessVerdict.ALLOWED, "system:serviceaccount:a:b")
    assert server.requests == [
        ("tokenreviews", {"token": "good"}),
        (
            "subjectaccessreviews",
            {
                "user": "system:serviceaccount:a:b",
                "uid": "1",
                "groups": ["g"],
                "extra": {"k": ["v"]},
                "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
            },
        ),
    ]


async def test_for_an_invalid_token_no_access_is_reviewed() -> None:
    server = Server()
    assert (await judged(server.reviews(), "bad")).verdict is AccessVerdict.UNAUTHENTICATED
    assert [kind for kind, _ in server.requests] == ["tokenreviews"]


@pytest.mark.parametrize(("allowed", "lasting"), [(True, 60.0), (False, 10.0)])
async def test_an_answer_is_cached_for_a_while(*, allowed: bool, lasting: float) -> None:
    server = Server(allowed=allowed)
    reviews = server.reviews()
    first = await judged(reviews)
    server.now = lasting - 0.1
    assert await judged(reviews) == first
    assert len(server.requests) == 2
    server.now, server.allowed = lasting, not allowed
    assert (await judged(reviews)).verdict is (AccessVerdict.REFUSED if allowed else AccessVerdict.ALLOWED)


async def test_a_token_that_no_server_can_issue_is_refused_without_a_review() -> None:
    server = Server()
    handler = authorized(lambda: asyncio.sleep(0, b""), server.reviews())[PATH]
    # The headers as aiohttp reads the byte 0xff.
    response = await handler(cast("web.Request", SimpleNamespace(headers={"Authorization": "Bearer \udcff"})))
    assert (response.status, server.requests) == (401, [])


async def test_concurrent_requests_with_one_token_cause_one_review() -> None:
    server = Server()
    reviews = server.reviews()
    found = await asyncio.gather(*(judged(reviews) for _ in range(20)))
    assert len(set(found)) == 1
    assert len(server.requests) == 2


async def test_an_error_of_the_server_is_not_cached() -> None:
    server = Server(away=True)
    reviews = server.reviews()
    with pytest.raises(ApiUnavailableError):
        await judged(reviews)
    server.away = False
    assert (await judged(reviews)).verdict is AccessVerdict.ALLOWED


@pytest.mark.lengthy
async def test_no_token_is_kept_and_the_number_of_answers_is_bounded() -> None:
    server = Server()
    reviews = server.reviews()
    for number in range(1100):
        await judged(reviews, f"secret-{number}")
    assert len(reviews._refused) == 1024
    assert "secret" not in repr(reviews._refused)


@pytest.mark.lengthy
async def test_many_invalid_tokens_do_not_remove_a_permission_from_the_cache() -> None:
    server = Server()
    reviews = server.reviews()
    await judged(reviews)
    for number in range(1100):
        await judged(reviews, f"bad-{number}")
    requests = len(server.requests)
    assert (await judged(reviews)).verdict is AccessVerdict.ALLOWED
    assert len(server.requests) == requests
