"""Each request of the operator about one object, with each answer that is not a success: `make refusals`.

A relay before a real API server gives the answers. `runner.core.kube.meaning` decides what is expected. One operator
serves all cells of the table. Each cell has an object of its own, and a neighbour that is created after the first
failure.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.kube import answers
from runner.core.kube.client import ClientLimits
from runner.core.kube.meaning import Follow, Request, follow
from runner.values.errors import ApiError, ApiUnavailableError
from tests.kit.objects import GROUP, Things
from tests.kit.operator import Operator, Project, account_kubeconfig
from tests.kit.relay import Action, Delay, LoseAnswer, LoseRequest, Refuse, Relay, Rule, through
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from aiohttp import web

    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api

FINALIZER = f"{GROUP}/finalizer"
NAMESPACE = "every-refusal"
REFUSED = "The API server refuses a request about the object; retrying with backoff"
_LIMIT = 5.0
"""Seconds that the operator waits for an answer."""
SHORT = f"""
import functools, sys
from runner.base.events import recorder
from runner.core.kube import client
client.ClientLimits = functools.partial(client.ClientLimits, total={_LIMIT})
recorder._OF_ALL = (10_000, 100)
from runner.cli.main import main
sys.exit(main())
"""
"""The operator, with a shorter limit of its own requests, and without one of Events: the cells follow each other."""
_DENIED = 'admission webhook "relay.example.com" denied the request'
ANSWERS: dict[str, Action] = {
    "401": Refuse(401),
    "403": Refuse(403, message=_DENIED),
    "404": Refuse(404),
    "409": Refuse(409),
    "413": Refuse(413),
    "422": Refuse(422),
    "429": Refuse(429, retry_after=1),
    "500": Refuse(500),
    "503": Refuse(503),
    "timeout": Delay(3 * _LIMIT),
    "reset before": LoseRequest(),
    "reset after": LoseAnswer(),
}
REQUESTS = (
    *(Request.OWNER, Request.FINALIZER_ADDED, Request.FINALIZER_REMOVED),
    *(Request.RUNNING, Request.STATUS, Request.EVENT),
)
_IN_CI = {
    (Request.FINALIZER_REMOVED, "403", "lasting"),
    (Request.STATUS, "reset after", "once"),
}


@dataclass(slots=True)
class Fault:
    """Selects the requests that fail: the first ones, and all later ones until `end` if it is `lasting`."""

    which: Callable[[web.BaseRequest], bool]
    passing: int
    """Requests that are forwarded first."""
    least: int
    lasting: bool
    hits: int = field(default=0)

    def __call__(self, request: web.BaseRequest) -> bool:
        if not self.which(request):
            return False
        if self.passing:
            self.passing -= 1
            return False
        if self.hits >= self.least and not self.lasting:
            return False
        self.hits += 1
        return True

    def end(self) -> None:
        self.lasting = False


@dataclass(frozen=True, slots=True)
class World:
    """One operator behind a relay."""

    relay: Relay
    api: Api
    things: Things
    operator: Operator

    def events(self, name: str) -> Counter[str]:
        """Count the Events about an object by their reason."""
        found = self.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        return Counter(each["reason"] for each in found if each["regarding"]["name"] == name)


@pytest.fixture(scope="module")
def world(api: Api, devcluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("refusals")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    relay = Relay(devcluster.url, Path(devcluster.kubeconfig).parent, random.Random(1))
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), NAMESPACE, folder)
    project = Project(folder / "project", NAMESPACE, through(relay.start(), kubeconfig, folder / "token"), api)
    project.folder.mkdir()
    project.role("thing", "- ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing", finalizer={"name": FINALIZER, "vars": {"finalizing": True}})
    operator = project.start(program=[sys.executable, "-P", "-c", SHORT])
    things = Things(api, NAMESPACE)
    yield World(relay, api, things, operator)
    operator.kill()
    relay.stop()
    for each in api.call("GET", things.path)["items"]:
        things.merge(each["metadata"]["name"], {"metadata": {"finalizers": None}})
    api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def expected(request: Request, action: Action) -> Follow:
    """Return what the table says about a cell."""
    if not isinstance(action, Refuse):
        return follow(request, ApiUnavailableError("relay", sent=True))
    error = answers.of_status("relay", {"kind": "Status", "code": action.status, "message": action.message})
    assert isinstance(error, ApiError)
    return follow(request, error)


def _selects(request: Request, name: str) -> Callable[[web.BaseRequest], bool]:
    method, end = {
        Request.OWNER: ("GET", f"/things/{name}"),
        Request.FINALIZER_ADDED: ("PATCH", f"/things/{name}"),
        Request.FINALIZER_REMOVED: ("PATCH", f"/things/{name}"),
        Request.RUNNING: ("PATCH", f"/things/{name}/status"),
        Request.STATUS: ("PATCH", f"/things/{name}/status"),
        Request.EVENT: ("POST", "/events"),
    }[request]
    return lambda each: each.method == method and each.path.endswith(end)


def _cells() -> Iterator[Any]:
    for request in REQUESTS:
        for answer in ANSWERS:
            for duration in ("once",) if request is Request.EVENT else ("once", "lasting"):
                mark = pytest.mark.full if (request, answer, duration) in _IN_CI else pytest.mark.nightly
                yield pytest.param(request, answer, duration, marks=mark, id=_cell(request, answer, duration))


def _cell(request: Request, answer: str, duration: str) -> str:
    return f"{request.name}-{answer}-{duration}".lower().replace("_", "-").replace(" ", "-")


@pytest.mark.xdist_group("refusals")
@pytest.mark.parametrize(("request_", "answer", "duration"), [*_cells()])
def test_a_failed_request_costs_nothing_but_time(world: World, request_: Request, answer: str, duration: str) -> None:
    action, things = ANSWERS[answer], world.things
    reaction, name = expected(request_, action), _cell(request_, answer, duration)
    neighbour, deletes = f"{name}-neighbour", request_ in {Request.OWNER, Request.FINALIZER_REMOVED}
    if deletes:
        things.create(name, {})
        things.await_success(name)
    fault = Fault(
        _selects(request_, name),
        passing=1 if request_ is Request.STATUS else 0,  # the condition `Running`
        # A first refusal can be about the kstatus conditions only: the operator omits them then.
        least=2 if reaction is Follow.KEEP else 1,
        lasting=duration == "lasting",
    )
    world.relay.rules = (Rule(fault, action),)
    things.delete(name) if deletes else things.create(name, {})
    wait_until(lambda: fault.hits, "the request")
    things.create(neighbour, {})
    things.await_success(neighbour)
    if duration == "lasting" and reaction is not Follow.PROCEED:
        wait_until(lambda: fault.hits >= visible(action), "repeated requests")
    fault.end()
    _assert_outcome(world, name, neighbour, deletes=deletes)
    reported = reaction in {Follow.REPORT, Follow.KEEP}
    if reported:
        wait_until(lambda: world.events(name)["RequestRefused"], "the Event")
    elif (
        request_ not in {Request.RUNNING, Request.STATUS} or duration == "once"
    ):  # a status with five conflicts in a row is kept too
        assert world.events(name)["RequestRefused"] == 0
    assert max(world.events(name).values(), default=0) <= 1
    assert len(world.operator.lines(msg=REFUSED, name=name)) <= reported
    assert world.operator.runs(neighbour)[0]["outcome"] == "succeeded"
    world.relay.rules = ()


def visible(action: Action) -> int:
    """Return after how many failures a caller sees one: the client repeats a deferred request, and a 401 once.

    A request that has taken effect may not be repeated at all.
    """
    if isinstance(action, LoseAnswer):
        return 1
    return ClientLimits().attempts if isinstance(action, Refuse) and action.retry_after else 2


def _assert_outcome(world: World, name: str, neighbour: str, *, deletes: bool) -> None:
    """Assert the final state of an object, and the number of its runs."""
    if deletes:
        world.things.await_gone(name)
    else:
        world.things.await_success(name)
        assert world.things.get(name)["metadata"]["finalizers"] == [FINALIZER]
        found, usual = world.things.conditions(name), world.things.conditions(neighbour)
        assert found.pop("RequestRefused", {"status": "False"})["status"] == "False"
        assert found.keys() == usual.keys()
    outcomes = [run["outcome"] for run in world.operator.runs(name)]
    assert outcomes == ["succeeded"] * (2 if deletes else 1)
