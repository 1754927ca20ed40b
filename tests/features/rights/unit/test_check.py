"""What the operator says of rights that it lacks."""

from __future__ import annotations

import asyncio
import contextlib
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from runner.app.features import REQUIRED_RIGHTS
from runner.base.config import sources
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.rights import Right
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Watch
from runner.engines.pod.fields import PodPolicy, isolated
from runner.features.hosts.fields import AllowedHosts, InventoryPolicy, with_hosts
from runner.features.rights.privileges import OperatorRights, RightsCheck
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, ServerError
from runner.values.objects import GVK
from tests.kit.virtual_time import virtually

LENT = InventoryPolicy(
    SpecPath.parse("spec.hosts"),
    "hosts",
    None,
    SpecPath.parse("spec.credentials"),
    AllowedHosts((), ("a.b",)),
    first_use=False,
    fact_cache=0.0,
)
GET, LIST, MAKE = (Right("", "a", "", *rest) for rest in (("pods", "get"), ("pods", "list"), ("secrets", "create")))


@dataclass
class Server:
    """Grants verbs; answers nothing the first `away` times."""

    granted: set[str] = field(default_factory=set)
    away: int = 0
    error: ApiError | None = None
    absence: Exception = field(default_factory=lambda: ApiUnavailableError("away"))
    credentials: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(namespace="home"))

    async def request(self, method: str, path: str, *, body: Any, user: str = "") -> dict[str, Any]:
        assert (method, user) == ("POST", "")
        if self.away:
            self.away -= 1
            raise self.absence
        if self.error:
            raise self.error
        if path.endswith("selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "me"}}}
        return {"status": {"allowed": body["spec"]["resourceAttributes"]["verb"] in self.granted}}


def reported(server: Server, *needed: Right) -> list[str]:
    learned: set[Right] = set()
    check = RightsCheck(cast("Client", server), cast("Discovery", None), learned.update)
    with capture_logs() as logs:
        virtually(check.check(set(needed)))
    assert learned == set(needed)
    return [line.get("problem", line["event"]) for line in logs if line["log_level"] == "warning"]


def test_each_resource_is_named_once_with_the_verbs_that_are_missing_and_the_rule() -> None:
    assert reported(Server({"get"}), GET, LIST, MAKE) == [
        (
            "forbidden: list pods in namespace a (as me); add to its Role: "
            '{apiGroups: [""], resources: [pods], verbs: [list]}'
        ),
        (
            "forbidden: create secrets in namespace a (as me); add to its Role: "
            '{apiGroups: [""], resources: [secrets], verbs: [create]}'
        ),
    ]


@pytest.mark.parametrize("absence", [ApiUnavailableError("away"), ServerError("starting", status=503)], ids=str)
def test_the_check_is_retried_if_the_server_is_unavailable(absence: Exception) -> None:
    found = reported(Server(away=3, absence=absence), GET)
    assert [line.partition(":")[0] for line in found] == ["forbidden"]


def test_a_refused_review_is_reported_and_counts_as_a_granted_right() -> None:
    error = ForbiddenError("no", status=403, reason="Forbidden", retry_after=None)
    assert reported(Server(error=error), GET) == ["Cannot check the operator's rights"]


class _Discovered:
    """Discovery of one kind."""

    async def find(self, gvk: GVK) -> ApiResource:
        return ApiResource(gvk, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset())


def test_rights_for_pods_are_checked_if_a_watch_uses_them(make_watch: Callable[..., Watch]) -> None:
    environ = {
        "WATCH_NAMESPACE": "a",
        "ANSIBLE_OPERATOR_LEADER_ELECTION_ID": "shop",
        "ANSIBLE_OPERATOR_LEADER_ELECTION_NAMESPACE": "home",
    }
    settings = sources.load(Namespace(), environ).settings
    server = Server()

    async def follow(watch: Watch) -> None:
        client, discovery = cast("Client", server), cast("Discovery", _Discovered())
        following = OperatorRights(settings).follow(client, discovery, [watch], REQUIRED_RIGHTS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(following, 10)

    def problems(watch: Watch) -> set[str]:
        with capture_logs() as logs:
            virtually(follow(watch))
        return {line["problem"].partition(" (as ")[0] for line in logs if line["log_level"] == "warning"}

    of_pods = problems(make_watch(more=isolated(PodPolicy(1, {}, {"image": "ee:1"})))) - problems(make_watch())
    assert of_pods == {
        "forbidden: create, delete, list secrets in namespace a",
        "forbidden: create, delete, list jobs.batch in namespace a",
        "forbidden: list events in namespace a",
        "forbidden: list, watch pods in namespace a",
        "forbidden: list, watch pods in namespace home",
        "forbidden: create secrets in namespace home",
        "forbidden: get secrets shop-pods-ca in namespace home",
    }
    warm = isolated(PodPolicy(1, {}, {"image": "ee:1"}, warm=1))
    of_warm = problems(make_watch(more=warm)) - problems(make_watch()) - of_pods
    assert of_warm == {
        "forbidden: create, delete jobs.batch in namespace home",
        "forbidden: get, patch pods in namespace home",
    }
    lending = make_watch(more=with_hosts(LENT))
    assert problems(lending) - problems(make_watch()) == {"forbidden: get secrets in namespace a"}
