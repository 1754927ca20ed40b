"""What the operator says of rights that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

from structlog.testing import capture_logs

from runner.errors import ApiError, ApiUnavailableError, ForbiddenError
from runner.kube.client import Client
from runner.kube.discovery import Discovery
from runner.rbac.check import RightsCheck
from runner.rbac.rights import Right

GET, LIST, MAKE = (Right("", "a", "", *rest) for rest in (("pods", "get"), ("pods", "list"), ("secrets", "create")))


@dataclass
class Server:
    """Grants verbs; answers nothing the first `away` times."""

    granted: set[str] = field(default_factory=set)
    away: int = 0
    error: ApiError | None = None

    async def request(self, method: str, path: str, *, body: Any) -> dict[str, Any]:
        assert method == "POST"
        if self.away:
            self.away -= 1
            raise ApiUnavailableError("away")
        if self.error:
            raise self.error
        if path.endswith("selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "me"}}}
        return {"status": {"allowed": body["spec"]["resourceAttributes"]["verb"] in self.granted}}


def reported(virtually: Callable[[Coroutine[Any, Any, None]], None], server: Server, *needed: Right) -> list[str]:
    learned: set[Right] = set()
    check = RightsCheck(cast("Client", server), cast("Discovery", None), learned.update)
    with capture_logs() as logs:
        virtually(check.check(set(needed)))
    assert learned == set(needed)
    return [line["problem"] for line in logs if line["log_level"] == "warning"]


def test_each_resource_is_named_once_with_the_verbs_that_are_missing_and_the_rule(virtually: Any) -> None:
    assert reported(virtually, Server({"get"}), GET, LIST, MAKE) == [
        (
            "forbidden: list pods in namespace a (as me); add to its Role: "
            '{apiGroups: [""], resources: [pods], verbs: [list]}'
        ),
        (
            "forbidden: create secrets in namespace a (as me); add to its Role: "
            '{apiGroups: [""], resources: [secrets], verbs: [create]}'
        ),
    ]


def test_without_missing_rights_nothing_is_reported(virtually: Any) -> None:
    assert reported(virtually, Server({"get", "list", "create"}), GET, LIST, MAKE) == []


def test_the_check_is_retried_if_the_server_is_unavailable(virtually: Any) -> None:
    assert len(reported(virtually, Server(away=3), GET)) == 1


def test_a_refused_review_counts_as_a_granted_right(virtually: Any) -> None:
    error = ForbiddenError("no", status=403, reason="Forbidden", retry_after=None)
    assert reported(virtually, Server(error=error), GET) == []
