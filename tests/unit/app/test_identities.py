"""An identity that the API server refuses: found out although open watches continue, and only if all is refused."""

from __future__ import annotations

import asyncio

import pytest

from runner.app.identities import IdentityCheck
from runner.values.errors import ApiUnavailableError, ForbiddenError, UnauthorizedError

pytestmark = pytest.mark.virtual_time
THINGS = "/apis/test.example.com/v1/namespaces/a/things"


class Server:
    """Answers the request of a check."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.probes = 0

    async def probe(self) -> None:
        self.probes += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error", [UnauthorizedError("Unauthorized", status=401), ForbiddenError("may not list", status=403)]
)
async def test_an_idle_identity_that_is_refused_fails_the_check_until_a_request_is_accepted(error: Exception) -> None:
    check = IdentityCheck("", (server := Server()).probe)
    following = asyncio.create_task(check.follow())
    await asyncio.sleep(25)
    assert (server.probes, check.problem) == (2, None)
    server.error = error
    await asyncio.sleep(20)
    assert str(error) in (check.problem or "")
    server.error = ApiUnavailableError("away")
    await asyncio.sleep(20)
    before = check.problem  # an outage shows nothing
    check.noted(THINGS, 200, "")
    assert (bool(before), check.problem) == (True, None)
    following.cancel()


@pytest.mark.parametrize(
    ("path", "status", "user", "counts"),
    [
        (THINGS, 200, "", True),
        ("/api/v1/namespaces/a/pods", 404, "", True),
        (THINGS, 403, "", False),
        (THINGS, 401, "", False),
        (THINGS, 0, "", False),
        (THINGS, 200, "system:serviceaccount:a:b", False),
        ("/apis/test.example.com/v1", 200, "", False),
        ("/api/v1", 200, "", False),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 201, "", False),
    ],
)
async def test_only_an_accepted_request_about_objects_of_the_same_identity_saves_the_probe(
    path: str, status: int, user: str, *, counts: bool
) -> None:
    check = IdentityCheck("", (server := Server()).probe)
    following = asyncio.create_task(check.follow())
    for _ in range(30):
        await asyncio.sleep(1)
        check.noted(path, status, user)
    assert (server.probes == 0) == counts
    following.cancel()
