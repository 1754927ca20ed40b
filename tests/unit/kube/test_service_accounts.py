"""Which service account a watch names, whatever prefix the deployment adds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.kube import service_accounts
from runner.core.kube.client import Client
from runner.values.errors import ApiError, ConfigError, ForbiddenError, NotFoundError, ServerError
from tests.kit.watch_values import watch_value

OPERATOR = "system:serviceaccount:home:shop-controller-manager"


@dataclass
class Server:
    """Has accounts, of which the operator may read and impersonate some."""

    accounts: set[str]
    user: str = OPERATOR
    unreadable: set[str] = field(default_factory=set)
    impersonated: set[str] = field(default_factory=set)
    reviews: ApiError | None = None
    """Answer to reviews of access, if they fail."""
    error: ApiError | None = None
    credentials: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(namespace="home"))

    async def request(self, method: str, path: str, *, body: Any = None, user: str = "") -> dict[str, Any]:
        if path.endswith("selfsubjectreviews"):
            assert not user
            if self.error:
                raise self.error
            return {"status": {"userInfo": {"username": self.user}}}
        if path.endswith("selfsubjectaccessreviews"):
            if self.reviews:
                raise self.reviews
            asked = body["spec"]["resourceAttributes"]
            assert (asked["verb"], asked["resource"]) == ("impersonate", "serviceaccounts")
            return {"status": {"allowed": f"{asked['namespace']}/{asked['name']}" in self.impersonated}}
        assert method == "GET"
        account = path.removeprefix("/api/v1/namespaces/").replace("/serviceaccounts", "")
        if account in self.unreadable:
            raise ForbiddenError("no", status=403)
        if account not in self.accounts:
            raise NotFoundError("no", status=404)
        return {}


def resolved(server: Server, written: str) -> str:
    watches = [watch_value(service_account=written), watch_value()]
    found, other = asyncio.run(service_accounts.resolve(cast("Client", server), watches))
    assert other == watches[1]
    return found.service_account


@pytest.mark.parametrize(
    ("user", "written", "names"),
    [
        (OPERATOR, "runs", ("home/shop-runs", "home/runs")),
        (OPERATOR, "shop-runs", ("home/shop-runs", "home/shop-shop-runs")),
        (OPERATOR, "other/runs", ("other/runs",)),
        ("system:serviceaccount:home:controller-manager", "runs", ("home/runs",)),
        ("system:serviceaccount:home:default", "runs", ("home/runs",)),
        ("admin-controller-manager", "runs", ("home/runs",)),
        ("", "runs", ("home/runs",)),
    ],
)
def test_the_account_of_the_operator_determines_the_prefix(user: str, written: str, names: tuple[str, ...]) -> None:
    assert service_accounts.candidates(written, "home", user) == names


def test_an_account_whose_name_begins_with_the_prefix_of_the_deployment_is_found_with_and_without_it() -> None:
    assert resolved(Server({"home/shop-shop-runs"}), "shop-runs") == "home/shop-shop-runs"
    assert resolved(Server({"home/shop-runs", "home/shop-shop-runs"}), "shop-runs") == "home/shop-runs"
    unreadable = {"home/shop-runs", "home/shop-shop-runs"}
    assert resolved(Server(set(), unreadable=unreadable), "shop-runs") == "home/shop-runs"
    may = Server(set(), unreadable=unreadable, impersonated={"home/shop-shop-runs"})
    assert resolved(may, "shop-runs") == "home/shop-shop-runs"


def test_a_missing_account_is_an_error_with_all_names() -> None:
    with pytest.raises(ConfigError, match=r"runs: no such service account: home/shop-runs or home/runs\. Create it"):
        resolved(Server(set()), "runs")
    with pytest.raises(ConfigError, match="no such service account: tools/runs"):
        resolved(Server({"home/runs"}), "tools/runs")
    # A Role that names one account does not permit to read the other.
    with pytest.raises(ConfigError, match="home/shop-runs or home/runs"):
        resolved(Server(set(), unreadable={"home/runs"}), "runs")


def test_if_no_account_may_be_read_the_right_to_impersonate_decides() -> None:
    unread = {"home/shop-runs", "home/runs"}
    assert resolved(Server(set(), unreadable=unread, impersonated={"home/shop-runs"}), "runs") == "home/shop-runs"
    assert resolved(Server(set(), unreadable=unread, impersonated={"home/runs"}), "runs") == "home/runs"
    assert resolved(Server(set(), unreadable=unread), "runs") == "home/runs"


def test_an_operator_that_may_not_review_its_rights_starts_with_the_name_as_it_is_written() -> None:
    unread = {"home/shop-runs", "home/runs"}
    server = Server(set(), unreadable=unread, reviews=ForbiddenError("no", status=403))
    assert resolved(server, "runs") == "home/runs"
    server.reviews = ServerError("busy", status=503)
    with pytest.raises(ServerError):
        resolved(server, "runs")


def test_without_the_own_user_name_there_is_no_prefix() -> None:
    assert resolved(Server({"home/runs"}, error=ApiError("no", status=404)), "runs") == "home/runs"


def test_a_temporary_error_does_not_decide_that_there_is_no_prefix() -> None:
    with pytest.raises(ServerError):
        resolved(Server({"home/runs"}, error=ServerError("busy", status=503)), "runs")


def test_watches_without_an_account_need_no_request() -> None:
    watches = (watch_value(),)
    assert asyncio.run(service_accounts.resolve(cast("Client", None), watches)) == watches
