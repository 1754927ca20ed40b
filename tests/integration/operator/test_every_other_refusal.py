"""Requests of the operator that are not about one object, each with each answer that is not a success: `make refusals`.

As `test_every_refusal`, but each cell starts an operator of its own: most of these requests come at the start. The
answer lasts until the operator has repeated the request, or has gone on without it.
"""

from __future__ import annotations

import base64
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.kube.meaning import Follow, Request
from runner.objects import MODE
from runner.pods.jobs import RUN_OF
from tests.faults.relay import Delay, Relay, Rule
from tests.faults.world import _through
from tests.integration.operator.conftest import GROUP, ROOT, Operator, Project, Things, account_kubeconfig, wait_until
from tests.integration.operator.test_every_refusal import ANSWERS, REQUESTS, SHORT, Fault, expected, visible

if TYPE_CHECKING:
    from aiohttp import web

    from runner.sdk.devcluster import DevCluster
    from tests.integration.operator.conftest import Api

NAMESPACE = "every-other-refusal"
ROLE = """
- name: Create a Secret
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ ansible_operator_meta.name }}-made", namespace: "{{ ansible_operator_meta.namespace }}"}
  when: makes | default(false)
"""
IN_POD = f"from runner.kube.credentials import auth\nauth.pod_namespace = lambda _: {NAMESPACE!r}\n"
"""In a pod, the operator stores its records in ConfigMaps."""
CHANGES = ("reference changed", "dependent changed")
OF_PODS = ("--pods-address=127.0.0.1:1", "--pods-bind-address=127.0.0.1:0")
RULES = [
    {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]},
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

    def selects(self, request: web.BaseRequest) -> bool:
        return request.method in self.methods and re.fullmatch(self.path, request.path) is not None


CASES = {
    "start": Case(Request.START, "GET", "/version", waits=True),
    "rights": Case(Request.RIGHTS, "POST", ".*/selfsubjectaccessreviews"),
    "discovery": Case(Request.DISCOVERY, "GET", f"/apis/{GROUP}/v1", waits=True),
    "watch": Case(Request.WATCH, "GET", ".*/things", waits=True),
    "watch-of-references": Case(Request.WATCH, "GET", ".*/secrets", waits=True),
    "watch-of-dependents": Case(Request.WATCH, "GET", ".*/secrets", makes=True),
    "dependent": Case(Request.RELATED, "GET", ".*/secrets/.*-made", makes=True),
    "kinds": Case(Request.KINDS, "GET PATCH", ".*/ansible-operator-dependent-kinds", makes=True),
    "record": Case(Request.AFTERWARDS, "POST PUT", ".*/configmaps(/ansible-operator-created-.*)?", makes=True),
    "plan": Case(Request.PLAN, "GET", ".*/configmaps/.*-plan-.*", makes=True, mode="plan"),
    "lease": Case(Request.LEASE, "GET POST PUT", ".*/leases(/.*)?", waits=True, flags=("--leader-elect",)),
    "shards": Case(Request.LEASE, "GET POST PUT", ".*/leases(/.*)?", waits=True, flags=("--shards=2",)),
    "pod-secret": Case(Request.POD_CREATED, "POST", ".*/secrets", in_pods=True, flags=OF_PODS),
    "pod-job": Case(Request.POD_CREATED, "POST", ".*/jobs", in_pods=True, flags=OF_PODS),
}
ELSEWHERE = {
    Request.READ: "tests/unit/controller/test_planning.py",
    Request.SETUP: "tests/unit/kube/test_service_accounts.py",
    Request.ROLLOUT: "tests/unit/controller/test_rollout.py",
    Request.METRICS: "tests/integration/operator/test_metrics.py",
    Request.PROXY: "tests/unit/proxy/handlers/test_writes.py",
    Request.POD_DELETED: "tests/integration/pods/test_engine.py",
    Request.POD_REST: "tests/unit/pods/test_warm.py",
}
"""Rows that need an agent, a warm pod or a client of the operator, with the tests of their answers."""
IN_CI = {("watch", "404"), ("kinds", "409"), ("lease", "503"), ("pod-secret", "503")}


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
    api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": "password"}})
    relay = Relay(devcluster.url, Path(devcluster.kubeconfig).parent, random.Random(1))
    kubeconfig = account_kubeconfig(api, Path(devcluster.kubeconfig), NAMESPACE, folder)
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/operator-{NAMESPACE}"
    role = api.call("GET", path)
    api.call("PUT", path, {**role, "rules": [*role["rules"], *RULES]})
    kubeconfig = _through(relay.start(), kubeconfig, folder / "token")
    yield World(relay, api, Things(api, NAMESPACE), kubeconfig, folder)
    relay.stop()
    api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def _start(world: World, name: str, case: Case) -> Operator:
    project = Project(world.folder / name, NAMESPACE, world.kubeconfig, world.api)
    project.folder.mkdir()
    project.allow_leases()
    project.role("thing", ROLE)
    pod = {"isolation": "pod", "podTemplate": {"image": "example.com/ee:1"}} if case.in_pods else {"prune": "report"}
    project.watch("thing", references=[{"version": "v1", "kind": "Secret", "path": "spec.passwordSecret"}], **pod)
    leases = (f"--leader-election-id={name}", f"--leader-election-namespace={NAMESPACE}")
    return project.start(*leases, *case.flags, ready=False, program=[sys.executable, "-P", "-c", IN_POD + SHORT])


def _cells() -> Iterator[Any]:
    for name, case in CASES.items():
        for answer in ANSWERS:
            # A watch that is open has no end after which its answer could be lost.
            if (case.request, answer) != (Request.WATCH, "reset after"):
                mark = pytest.mark.full if (name, answer) in IN_CI else pytest.mark.nightly
                yield pytest.param(name, answer, marks=mark, id=f"{name}-{answer}".replace(" ", "-"))


@pytest.mark.xdist_group("refusals")
@pytest.mark.parametrize(("name", "answer"), [*_cells()])
def test_a_failed_request_of_the_operator_costs_nothing_but_time(world: World, name: str, answer: str) -> None:
    case, deed, things = CASES[name], ANSWERS[answer], world.things
    cell = f"{name}-{answer}".replace(" ", "-")
    is_related = case.request is Request.RELATED  # a run reads the same object
    fault = Fault(case.selects, passing=0, least=1, lasting=not is_related)
    rules = (Rule(fault, deed),)
    world.relay.rules = () if case.in_pods or is_related else rules
    operator = _start(world, cell, case)
    if case.in_pods:  # at the start, the operator creates another Secret
        wait_until(operator.is_ready, "the operator to be ready")
        world.relay.rules = rules
    things.create(cell, {"passwordSecret": "password", "makes": case.makes}, annotations={MODE: case.mode})
    try:
        if is_related:
            things.await_success(cell)
            world.relay.rules = rules
            _change(world, f"{cell}-made")
        wait_until(lambda: fault.hits, "the request")
        if case.waits:
            is_slow = isinstance(deed, Delay) and case.request is Request.WATCH  # then the list is late
            wait_until(lambda: fault.hits >= (1 if is_slow else visible(deed)), "repeated requests")
            assert operator.runs(cell) == []
        elif case.request in {Request.RIGHTS, Request.KINDS, Request.AFTERWARDS} or name == "watch-of-dependents":
            things.await_success(cell)
        fault.end()
        _assert_outcome(world, operator, case, cell, fails=expected(case.request, deed) is Follow.FAIL)
        assert operator.process.poll() is None
    finally:
        world.relay.rules = ()
        things.delete(cell)
        assert operator.stop() == 0


def _assert_outcome(world: World, operator: Operator, case: Case, cell: str, *, fails: bool) -> None:
    """Assert the final state of the object, its runs and its Events, and that the log is short."""
    outcomes = [run["outcome"] for run in operator.runs(cell)]
    if case.in_pods:
        obj = world.things.get(cell)
        assert obj is not None
        created = [f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/secrets"]
        paths = [f"{path}?labelSelector={RUN_OF}%3D{obj['metadata']['uid']}" for path in created]
        wait_until(lambda: [len(world.api.call("GET", path)["items"]) for path in paths] == [1, 1], "one Job")
        assert [run["outcome"] for run in operator.runs(cell)] == ["not started"] * fails
    elif case.mode == "plan":
        world.things.await_condition(cell, "Planned")
    else:
        world.things.await_success(cell)
        outcomes = [run["outcome"] for run in operator.runs(cell) if run["reason"] not in CHANGES]
        assert outcomes == ["succeeded"]
    if cell == "dependent-403":  # without the right, only changes of the metadata start a run
        operator.await_line(
            "Cannot read dependents: changes of their content and status are not detected", needs="verb get on secrets"
        )
    elif case.request is Request.RELATED:
        operator.await_line("Run ended", name=cell, reason=CHANGES[case.makes], outcome="succeeded")
    if case.request is Request.WATCH:
        _await_run_of_change(world, operator, case, cell)
    found = world.api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    reasons = Counter(each["reason"] for each in found if each["regarding"]["name"] == cell)
    assert reasons["RequestRefused"] == 0
    repeated = Counter(line["msg"] for line in operator.lines(level="warning"))
    assert max(repeated.values(), default=0) <= 6, repeated


def _await_run_of_change(world: World, operator: Operator, case: Case, cell: str) -> None:
    """Change an object until this starts a run: before the first list of dependents, it starts none."""
    due = 0.0

    def is_seen() -> bool:
        nonlocal due
        if time.monotonic() >= due:
            _change(world, f"{cell}-made" if case.makes else "password")
            due = time.monotonic() + 5
        return bool(operator.lines(msg="Run ended", name=cell, reason=CHANGES[case.makes], outcome="succeeded"))

    wait_until(is_seen, "the run after a change")


def _change(world: World, secret: str) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret}"
    change = {"data": {"changed": base64.b64encode(random.randbytes(8)).decode()}}
    world.api.call("PATCH", path, change, "application/merge-patch+json")


def test_each_row_of_the_table_is_proven() -> None:
    proven = {*REQUESTS, *(case.request for case in CASES.values())}
    assert proven | set(ELSEWHERE) == set(Request)
    assert not proven & set(ELSEWHERE)
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).is_file()] == []
