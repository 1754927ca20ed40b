"""Requests of the operator that are not about one object, each with each answer that is not a success: `make refusals`.

As `test_every_refusal`, but each cell starts an operator of its own: most of these requests come at the start. The
answer lasts until the operator has repeated the request, or has gone on without it.
"""

from __future__ import annotations

import base64
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.kube.meaning import Follow, Request
from runner.engines.pod.jobs import RUN_OF, WARM
from runner.values.objects import MODE
from tests.integration.operator.test_every_refusal import ANSWERS, REQUESTS, SHORT, Fault, expected, visible
from tests.integration.operator.test_metrics import Scraper, grant
from tests.kit.objects import GROUP, Things
from tests.kit.operator import ACCOUNT, Operator, Project, account_kubeconfig
from tests.kit.relay import Delay, Relay, Rule, through
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from aiohttp import web

    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api

NAMESPACE = "every-other-refusal"
ROLE = """
- name: Create a Secret
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ ansible_operator_meta.name }}-made", namespace: "{{ ansible_operator_meta.namespace }}"}
    apply: "{{ applies | default(false) }}"
    server_side_apply: "{{ {'field_manager': 'role'} if applies | default(false) else omit }}"
  when: makes | default(false)
"""
IN_POD = f"from runner.base.credentials import auth\nauth.pod_namespace = lambda _: {NAMESPACE!r}\n"
"""In a pod, the operator stores its records in ConfigMaps."""
_NAMESPACED = f"/api/v1/namespaces/{NAMESPACE}"
_REPEATED = {Request.ACCOUNT, Request.AUTHORITY, Request.PROXY, Request.READ, Request.POD_DELETED}
_AGAIN = {Follow.REPEAT, Follow.RETRY, Follow.REPORT, Follow.RETURN, Follow.READ_AGAIN}
_RUNS = {Request.RIGHTS, Request.KINDS, Request.AFTERWARDS, Request.PROXY}
"""Requests whose failure delays no run."""
_NEEDED = {("account", "404"), ("new-authority", "404")}
"""Answers that mean that something is missing without which the operator exits."""
CHANGES = ("reference changed", "dependent changed")
METRICS = ("--metrics-secure", "--metrics-require-rbac")
OF_PODS = ("--pods-address=127.0.0.1:1", "--pods-bind-address=127.0.0.1:0")
_INVENTORY = {"hosts": "spec.hosts", "credentials": "spec.credentials", "allow": ["127.0.0.1"]}
RULES = [
    {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "impersonate"]},
    {"apiGroups": ["", "batch"], "resources": ["pods", "jobs", "events"], "verbs": ["*"]},
]


@dataclass(frozen=True, slots=True)
class Case:
    """Requests of one row, and what makes the operator send them."""

    request: Request
    methods: str
    path: str
    waits: bool = False
    """Whether no run begins before the request succeeds."""
    makes: bool = False
    mode: str = "apply"
    in_pods: bool = False
    flags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the watch."""
    at_start: bool = True
    """Whether the fault begins before the operator."""

    def selects(self, request: web.BaseRequest) -> bool:
        is_own = request.headers.get("User-Agent", "").startswith("ansible-operator/")
        path = request.path + (f"?{request.query_string}" if self.request is Request.READ else "")
        return is_own and request.method in self.methods.split() and re.fullmatch(self.path, path) is not None


CASES = {
    "start": Case(Request.START, "GET", "/version", waits=True),
    "account": Case(Request.ACCOUNT, "GET", ".*/serviceaccounts/narrow", options={"serviceAccount": "narrow"}),
    "own-user": Case(Request.ACCOUNT, "POST", ".*/selfsubjectreviews", options={"serviceAccount": "narrow"}),
    "authority": Case(Request.AUTHORITY, "GET", ".*/secrets/.*-pods-ca", in_pods=True, flags=OF_PODS),
    "new-authority": Case(Request.AUTHORITY, "POST", ".*/secrets", in_pods=True, flags=OF_PODS),
    "rights": Case(Request.RIGHTS, "POST", ".*/selfsubjectaccessreviews"),
    "discovery": Case(Request.DISCOVERY, "GET", f"/apis/{GROUP}/v1", waits=True),
    "watch": Case(Request.WATCH, "GET", ".*/things", waits=True),
    "watch-of-references": Case(Request.WATCH, "GET", ".*/secrets"),
    "watch-of-dependents": Case(Request.WATCH, "GET", ".*/secrets", makes=True),
    "dependent": Case(Request.RELATED, "GET", ".*/secrets/.*-made", makes=True, at_start=False),
    "kinds": Case(Request.KINDS, "GET PATCH", ".*/ansible-operator-dependent-kinds", makes=True),
    "record": Case(Request.AFTERWARDS, "POST PUT", ".*/configmaps(/ansible-operator-created-.*)?", makes=True),
    "plan": Case(Request.PLAN, "GET", ".*/configmaps/.*-plan-.*", makes=True, mode="plan"),
    "lease": Case(Request.LEASE, "GET POST PUT", ".*/leases(/.*)?", waits=True, flags=("--leader-elect",)),
    "proxy-kind": Case(Request.PROXY, "GET", "/api/v1", makes=True, at_start=False),
    "proxy-object": Case(Request.PROXY, "GET", ".*/secrets/.*-made", makes=True, at_start=False),
    "runs": Case(Request.READ, "GET", r".*/secrets\?labelSelector=.*", in_pods=True, flags=OF_PODS, at_start=False),
    "pod-secret": Case(Request.POD_CREATED, "POST", ".*/secrets", in_pods=True, flags=OF_PODS, at_start=False),
    "pod-job": Case(Request.POD_CREATED, "POST", ".*/jobs", in_pods=True, flags=OF_PODS, at_start=False),
    "deleted-job": Case(Request.POD_DELETED, "DELETE", ".*/jobs/.*", in_pods=True, flags=OF_PODS, at_start=False),
    "deleted-secret": Case(Request.POD_DELETED, "DELETE", ".*/secrets/.*", in_pods=True, flags=OF_PODS, at_start=False),
    "warm-pod": Case(Request.POD_REST, "POST", ".*/jobs", in_pods=True, flags=OF_PODS, options={"warmPods": 1}),
    "lent": Case(
        *(Request.LENT, "GET", ".*/secrets/lent"), waits=True, at_start=False, options={"inventory": _INVENTORY}
    ),
    "no-pod": Case(Request.POD_REST, "GET", ".*/events", in_pods=True, flags=OF_PODS, at_start=False),
}
IN_CI = {("watch", "404"), ("record", "timeout")}


@dataclass(frozen=True, slots=True)
class World:
    """A namespace, and the relay before its API server."""

    relay: Relay
    api: Api
    things: Things
    kubeconfig: Path
    folder: Path


@pytest.fixture(scope="module")
def world(api: Api, devcluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("refusals")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    api.call("POST", f"{_NAMESPACED}/secrets", {"metadata": {"name": "password"}})
    lent = {"metadata": {"name": "lent", "labels": {f"{GROUP}/lend-to-thing": "true"}}, "stringData": {"password": "x"}}
    api.call("POST", f"{_NAMESPACED}/secrets", lent)
    api.call("POST", f"{_NAMESPACED}/serviceaccounts", {"metadata": {"name": "narrow"}})
    relay = Relay(devcluster.url, Path(devcluster.kubeconfig).parent, random.Random(1))
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), NAMESPACE, folder)
    kubeconfig = through(relay.start(), kubeconfig, folder / "token")
    Project(folder, NAMESPACE, kubeconfig, api).permit(*RULES)
    yield World(relay, api, Things(api, NAMESPACE), kubeconfig, folder)
    relay.stop()
    api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def _start(world: World, name: str, case: Case) -> Operator:
    project = Project(world.folder / name, NAMESPACE, world.kubeconfig, world.api)
    project.folder.mkdir()
    project.allow_lease(name)
    project.role("thing", ROLE)
    pod = {"isolation": "pod", "podTemplate": {"image": "example.com/ee:1"}} if case.in_pods else {"prune": "report"}
    project.watch(
        "thing", references=[{"version": "v1", "kind": "Secret", "path": "spec.passwordSecret"}], **pod, **case.options
    )
    leases = (f"--leader-election-id={name}", f"--leader-election-namespace={NAMESPACE}")
    return project.start(*leases, *case.flags, ready=False, program=[sys.executable, "-P", "-c", IN_POD + SHORT])


def _cells() -> Iterator[Any]:
    for name, case in CASES.items():
        for answer in ANSWERS:
            # A watch that is open has no end after which its answer could be lost.
            # A Secret that does not exist is awaited, as tests/features/hosts/integration shows.
            if (case.request, answer) not in {(Request.WATCH, "reset after"), (Request.LENT, "404")}:
                mark = pytest.mark.full if (name, answer) in IN_CI else pytest.mark.nightly
                yield pytest.param(name, answer, marks=mark, id=f"{name}-{answer}".replace(" ", "-"))


@pytest.mark.xdist_group("refusals")
@pytest.mark.parametrize(("name", "answer"), [*_cells()])
def test_a_failed_request_of_the_operator_costs_nothing_but_time(world: World, name: str, answer: str) -> None:
    case, action, things = CASES[name], ANSWERS[answer], world.things
    cell, reaction = f"{name}-{answer}".replace(" ", "-"), expected(case.request, action)
    fault = Fault(case.selects, passing=0, least=1, lasting=case.request is not Request.RELATED)
    world.relay.rules = (Rule(fault, action),) if case.at_start else ()
    operator = _start(world, cell, case)
    try:
        if reaction is Follow.EXIT or (name, answer) in _NEEDED:
            assert operator.process.wait(patience()) in {1, 2}
            assert "Traceback" not in operator.log
            return
        uid = _begin(world, operator, name, cell, (Rule(fault, action),))
        wait_until(lambda: fault.hits, "the request")
        is_slow = isinstance(action, Delay) and case.request is Request.WATCH  # then the list is late
        if case.waits or (case.request in _REPEATED and reaction in _AGAIN):
            wait_until(lambda: fault.hits >= (1 if is_slow else visible(action)), "repeated requests")
            assert [each for each in operator.runs(cell) if each["outcome"] == "succeeded"] == []
        elif case.request in _RUNS or name.startswith("watch-of-"):
            things.await_success(cell)
        if name == "watch-of-dependents":  # before the first list
            _change(world, f"{cell}-made")
        fault.end()
        _assert_outcome(world, operator, name, cell, uid, reaction)
        assert operator.process.poll() is None
    finally:
        world.relay.rules = ()
        for each in (cell, f"{cell}-first"):
            things.delete(each)
        world.api.call("DELETE", f"{_NAMESPACED}/resourcequotas/none")
        if operator.process.poll() is None:
            assert operator.stop() == 0


def _begin(world: World, operator: Operator, name: str, cell: str, rules: tuple[Rule, ...]) -> str:
    """Create the object of a cell, and do what leads to the requests; return its UID."""
    case, things = CASES[name], world.things
    spec: dict[str, Any] = {
        "passwordSecret": "password",
        "credentials": "lent",
    }  # a watch of Secrets, so only where no other one is tested
    if case.makes:
        spec = {"makes": True, "applies": name == "proxy-object"}
    if not case.at_start:
        _prepare(world, operator, case, cell, spec)
        world.relay.rules = rules
    if name == "warm-pod":  # a run creates a Job too
        operator.await_line("A warm pod did not start or has ended; starting another one later")
        world.relay.rules = ()
    if case.request not in {Request.RELATED, Request.POD_DELETED}:
        things.create(cell, spec, annotations={MODE: case.mode})
    found = things.get(cell)
    if case.request is Request.RELATED:
        _change(world, f"{cell}-made")
    if case.request is Request.POD_DELETED:
        things.delete(cell)
    uid: str = found["metadata"]["uid"]
    return uid


def _prepare(world: World, operator: Operator, case: Case, cell: str, spec: Mapping[str, Any]) -> None:
    """Await the state in which the requests of a case come."""
    wait_until(operator.is_ready, "the operator to be ready")
    if case.request is Request.PROXY:  # the operator itself looks up the kind of references
        world.things.create(f"{cell}-first", {"passwordSecret": "password"})
        world.things.await_success(f"{cell}-first")
    if case.request is Request.RELATED:
        world.things.create(cell, spec)
        world.things.await_success(cell)
    if case.request is Request.POD_DELETED:
        uid = world.things.create(cell, spec)["metadata"]["uid"]
        wait_until(lambda: _objects(world, f"{RUN_OF}%3D{uid}") == [1, 1], "one Job")
    if case.request is Request.POD_REST:
        quotas = f"{_NAMESPACED}/resourcequotas"
        world.api.call("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        wait_until(lambda: world.api.call("GET", f"{quotas}/none").get("status", {}).get("hard"), "the quota")


def _objects(world: World, selector: str) -> list[int]:
    """Count the Jobs and Secrets with a label."""
    kinds = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"{_NAMESPACED}/secrets"
    return [len(world.api.call("GET", f"{path}?labelSelector={selector}")["items"]) for path in kinds]


def _assert_outcome(world: World, operator: Operator, name: str, cell: str, uid: str, reaction: Follow) -> None:
    """Assert the final state of the object, its runs and its Events, and that the log is short."""
    case = CASES[name]
    if case.in_pods:
        left = [0, 0] if case.request is Request.POD_DELETED else [1, 1]
        wait_until(lambda: _objects(world, f"{RUN_OF}%3D{uid}") == left, "one Job, or none")
        assert [run["outcome"] for run in operator.runs(cell)] == ["not started"] * (reaction is Follow.FAIL)
    elif case.mode == "plan":
        world.things.await_condition(cell, "Planned")
    else:
        world.things.await_success(cell)
        outcomes = [run["outcome"] for run in operator.runs(cell) if run["reason"] not in CHANGES]
        assert outcomes.count("succeeded") == 1
        assert len(outcomes) == 1 or reaction is Follow.RETURN, outcomes
    if name == "warm-pod":
        wait_until(lambda: _objects(world, WARM) == [1, 1], "the warm pod")
    if name == "no-pod":
        running = world.things.await_condition(cell, "Running")
        wait_until(lambda: "quota" in world.things.conditions(cell)["Running"]["message"], f"the reason: {running}")
    if case.request is Request.PROXY:
        made = world.api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{cell}-made")
        assert bool(made["metadata"].get("ownerReferences")) is (reaction is not Follow.FORWARD or "object-404" in cell)
    if cell == "dependent-403":  # without the right, only changes of the metadata start a run
        operator.await_line(
            "Cannot read dependents: changes of their content and status are not detected", needs="verb get on secrets"
        )
    elif case.request in {Request.RELATED, Request.WATCH}:
        if not case.makes:
            _change(world, "password")
        operator.await_line("Run ended", name=cell, reason=CHANGES[case.makes], outcome="succeeded")
    if reaction is Follow.REPORT:  # nothing waits for Events
        wait_until(lambda: world.things.events(cell, "RequestRefused"), "the Event")
    assert len(world.things.events(cell, "RequestRefused")) == (reaction is Follow.REPORT)
    repeated = Counter(line["msg"] for line in operator.lines(level="warning"))
    assert max(repeated.values(), default=0) <= 6, repeated


def _change(world: World, secret: str) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret}"
    change = {"data": {"changed": base64.b64encode(random.randbytes(8)).decode()}}
    world.api.call("PATCH", path, change, "application/merge-patch+json")


@pytest.fixture(scope="module")
def metered(world: World) -> Iterator[Operator]:
    """An operator whose clients of metrics need a right."""
    grant(world.api, "metrics_auth_role.yaml", NAMESPACE, ACCOUNT)
    grant(world.api, "metrics_reader_role.yaml", NAMESPACE, "reader")
    world.api.call("POST", f"{_NAMESPACED}/serviceaccounts", {"metadata": {"name": "reader"}})
    case = Case(Request.METRICS, "POST", ".*/(tokenreviews|subjectaccessreviews)", flags=METRICS)
    operator = _start(world, "metered", case)
    wait_until(operator.is_ready, "the operator to be ready")
    yield operator
    operator.kill()


@pytest.mark.nightly
@pytest.mark.xdist_group("refusals")
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("review", ["tokenreviews", "subjectaccessreviews"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_client_of_the_metrics_can_repeat_its_request(
    world: World, metered: Operator, review: str, answer: str
) -> None:
    action, scraper = ANSWERS[answer], Scraper(metered)
    path = f"{_NAMESPACED}/serviceaccounts/reader/token"
    token = world.api.call("POST", path, {"spec": {}})["status"]["token"]  # reviews of another one are cached
    fault = Fault(Case(Request.METRICS, "POST", f".*/{review}").selects, passing=0, least=1, lasting=True)
    world.relay.rules = (Rule(fault, action),)
    try:
        assert scraper.get(token)[0] == (500 if answer == "403" else 503)
        assert fault.hits
        fault.end()
        assert scraper.get(token)[0] == 200
    finally:
        world.relay.rules = ()


def test_each_row_of_the_table_is_proven() -> None:
    elsewhere = {Request.METRICS, Request.ROLLOUT}  # above; tests/features/rollout/unit/test_hooks.py
    assert {*REQUESTS, *elsewhere, *(case.request for case in CASES.values())} == set(Request)
