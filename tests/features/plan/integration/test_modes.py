"""Modes `plan` and `approve`: what a run would change is in the status, and only an approved plan is executed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.plan.integration.test_plan import dump
from tests.kit.objects import Things
from tests.kit.tasks import NAME, keep, status
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

OURS = "ansible.sdk.operatorframework.io/"
Json = dict[str, Any]
PASSWORD = "a-secret-password"
URL = f"db://user:{PASSWORD}@db"
ROLE = (
    """
- name: Read the input
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    name: input
  register: input
"""
    + keep("the configuration", "ConfigMap", f"{NAME}-config", {"data": {"size": "{{ size | string }}", "url": URL}})
    + keep("the password", "Secret", f"{NAME}-credentials", {"stringData": {"password": PASSWORD}})
    + status(size="{{ size | string }}")
)
WAITS = """
- name: Wait in the plan of the second generation
  check_mode: false
  when: size == 2
  block:
    - ansible.builtin.file: {{path: {folder}/started, state: touch, mode: "600"}}
    - ansible.builtin.wait_for: {{path: {folder}/continue}}
"""


def plan_of(things: Things, name: str) -> Json:
    found: Json = (things.get(name).get("status") or {}).get("plan") or {}
    return found


def await_plan(things: Things, name: str, reason: str = "Changes", *, after: str = "") -> Json:
    """Wait for a plan of the present generation, other than the one with the hash `after`."""

    def made() -> Json | None:
        obj = things.get(name)
        condition = things.conditions(name).get("Planned", {})
        plan = plan_of(things, name)
        is_current = condition.get("observedGeneration") == obj["metadata"]["generation"]
        is_made = is_current and condition.get("reason") == reason and not (after and plan.get("hash") == after)
        return (plan or condition) if is_made else None

    try:
        found = wait_until(made, f"a plan of {name}, {reason}")
    except AssertionError as error:
        error.add_note(f"it has {plan_of(things, name)} {things.conditions(name)}")
        raise
    assert found is not None
    return found


def changed(before: dict[str, Json], after: dict[str, Json]) -> set[str]:
    """Return the paths of the objects that differ, without Events."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return {path for path in differing if "/events/" not in path}


def request_plan(operator: Operator, things: Things, name: str, approved: str = "") -> None:
    """Request a plan, by an approval if `approved` is not empty, and wait for its end.

    The last plan must have ended: a later end would count as that of the requested one.
    """
    count = len(operator.lines(msg="Plan ended", name=name))
    request = {"approve": approved} if approved else {"run-requested": str(count)}
    things.merge(name, {"metadata": {"annotations": {OURS + each: value for each, value in request.items()}}})
    wait_until(lambda: len(operator.lines(msg="Plan ended", name=name)) > count, f"the next plan of {name}")


def allow_secrets(project: Project) -> None:
    project.permit({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "patch"]})


def test_the_mode_plan_writes_nothing_but_the_plan(project: Project, things: Things, api: Api) -> None:
    space = project.namespace
    core = f"/api/v1/namespaces/{space}"
    allow_secrets(project)
    project.role("thing", ROLE)
    project.watch("thing", mode="plan", finalizer={"name": "test.example.com/undo", "vars": {"state": "absent"}})
    operator = project.start()
    before = dump(api, space)
    created = things.create("one", {"size": 1}, annotations={OURS + "mode": "apply"})
    plan = await_plan(things, "one")
    after = dump(api, space)
    config_map = f"/api/v1/configmaps/{space}/{plan['configMap']}"
    thing = f"/apis/test.example.com/v1/things/{space}/one"
    assert changed(before, after) == {config_map, thing}
    assert {**after[thing], "metadata": 0, "status": 0} == {**created, "metadata": 0, "status": 0}
    assert "finalizers" not in after[thing]["metadata"]
    assert [(each["verb"], each["kind"], each["name"]) for each in plan["changes"]] == [
        ("create", "ConfigMap", "one-config"),
        ("create", "Secret", "one-credentials"),
        ("change", "Thing", "one"),
    ]
    assert plan["changes"][2]["fields"] == ["status"]
    assert plan["generation"] == 1
    assert f"{core}/configmaps/input" in plan["reads"]
    (owner,) = after[config_map]["metadata"]["ownerReferences"]
    assert owner["uid"] == created["metadata"]["uid"]
    text = after[config_map]["data"]["changes.yaml"]
    assert "size: '1'" in text
    assert PASSWORD not in text + json.dumps(after[thing])
    assert operator.runs("one") == []
    conditions = things.conditions("one")
    assert "Running" not in conditions
    assert conditions["Ready"]["reason"] == "PlanNotExecuted"
    assert "; plan is used" in conditions["LimitedAnnotations"]["message"]

    # An equal plan causes no write.
    request_plan(operator, things, "one")
    again = dump(api, space)
    assert again[config_map] == after[config_map]
    assert again[thing]["status"] == after[thing]["status"]

    things.merge("one", {"spec": {"size": 2}})
    second = await_plan(things, "one", after=plan["hash"])
    assert "size: '2'" in api.call("GET", f"{core}/configmaps/{plan['configMap']}")["data"]["changes.yaml"]
    assert second["configMap"] == plan["configMap"]

    # Nothing is left to change: the ConfigMap goes.
    data = {"size": "2", "url": URL}
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "one-config"}, "data": data})
    secret = {"metadata": {"name": "one-credentials"}, "stringData": {"password": PASSWORD}}
    api.call("POST", f"{core}/secrets", secret)
    things.merge("one", {"status": {"size": "2"}}, "status")
    request_plan(operator, things, "one")
    empty = await_plan(things, "one", "NoChanges")
    assert empty["changes"] == []
    assert "configMap" not in empty
    assert api.call("GET", f"{core}/configmaps/{plan['configMap']}") is None
    assert things.conditions("one")["Ready"]["status"] == "True"


@pytest.mark.full
def test_a_stop_of_the_operator_before_or_during_the_run_of_a_plan_leaves_the_last_plan(
    project: Project, things: Things, api: Api
) -> None:
    maps = f"/api/v1/namespaces/{project.namespace}/configmaps"
    allow_secrets(project)
    project.role("thing", WAITS.format(folder=project.folder) + ROLE)
    project.watch("thing", mode="approve")
    operator = project.start("--graceful-shutdown-timeout=1s")
    things.create("one", {"size": 1})
    plan = await_plan(things, "one")
    before = things.get("one")["status"]
    things.merge("one", {"spec": {"size": 2}})
    wait_until((project.folder / "started").exists, "the second plan to begin")
    assert operator.stop() == 0
    assert things.get("one")["status"] == before

    # A file that is long, and empty on the disk, delays the attempt before its run: the operator reads the whole role.
    file = project.folder / "roles/thing/files/long"
    file.parent.mkdir()
    file.touch()
    os.truncate(file, 1 << 40)
    operator = project.start("--graceful-shutdown-timeout=1s", ready=False)
    pid = operator.process.pid
    wait_until(lambda: is_open(pid, file), "the operator to read the file")
    operator.process.send_signal(signal.SIGTERM)
    operator.await_line("Stopping")
    os.truncate(file, 0)
    assert operator.process.wait(patience()) == 0
    assert things.get("one")["status"] == before
    assert api.call("GET", f"{maps}/{plan['configMap']}") is not None


def is_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it is closed by now
            if descriptor.readlink() == path:
                return True
    return False


def approve(things: Things, name: str, approved: str) -> None:
    things.merge(name, {"metadata": {"annotations": {OURS + "approve": approved}}})


def await_approval(things: Things, name: str, state: str, approved: str) -> Json:
    def ended() -> Json | None:
        approval: Json = plan_of(things, name).get("approval", {})
        return approval if (approval.get("state"), approval.get("hash")) == (state, approved) else None

    what = f"the approval of {name} to be {state}: {plan_of(things, name)} {things.conditions(name)}"
    found = wait_until(ended, what)
    assert found is not None
    return found


def await_stale(things: Things, name: str, approved: str) -> str:
    """Wait until an approval is stale; return why."""

    def stale() -> str:
        condition = things.conditions(name).get("PlanStale", {})
        message = str(condition.get("message", ""))
        return message if condition.get("status") == "True" and message.startswith(f"Plan {approved} ") else ""

    return wait_until(stale, f"{approved} to be stale: {things.conditions(name)}")


KINDS = [{"name": "web", "type": "ClusterIP"}, {"name": "web-node", "type": "NodePort"}]
SPEC = {"type": "{{ item.type }}", "ports": [{"name": "http", "port": 80}], "selector": {"app": "web"}}
SERVICES = (
    keep("the services", "Service", "{{ item.name }}", {"spec": SPEC}, loop=KINDS, register="services")
    + """
- name: Patch the services
  kubernetes.core.k8s:
    state: patched
    definition:
      apiVersion: v1
      kind: Service
      metadata: {name: "{{ item }}", namespace: "{{ ansible_operator_meta.namespace }}", labels: {patched: "yes"}}
      spec: {sessionAffinity: ClientIP}
  loop: [web, web-node]
- name: Patch a service by JSON
  kubernetes.core.k8s_json_patch:
    kind: Service
    name: web-node
    namespace: "{{ ansible_operator_meta.namespace }}"
    patch: [{op: add, path: /metadata/labels/json, value: "yes"}]
- name: Read the service
  kubernetes.core.k8s_info: {kind: Service, name: web-node, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: node
- name: Keep the addresses
  kubernetes.core.k8s:
    definition: "{{ {'apiVersion': 'v1', 'kind': item.kind, 'metadata': meta, item.field: found} }}"
  loop:
    - {kind: ConfigMap, field: data}
    - {kind: Secret, field: stringData}
  vars:
    meta: {name: addresses, namespace: "{{ ansible_operator_meta.namespace }}"}
    found:
      url: "http://{{ services.results[0].result.spec.clusterIP }}:80/path"
      port: "port-{{ node.resources[0].spec.ports[0].nodePort }}"
      uid: "{{ node.resources[0].metadata.uid }}"
"""
)
GENERATED = {"user": "admin", "password": "{{ lookup('ansible.builtin.password', '/dev/null', length=20) }}"}
TOKEN = "{{ 'token-' ~ (1000000000 | random) if size == 2 else 'x' }}"
GENERATES = (
    """
- name: Read the password
  kubernetes.core.k8s_info: {kind: Secret, name: password, namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
"""
    + keep("the password", "Secret", "password", {"stringData": GENERATED}, when="not found.resources")
    + keep("the configuration", "ConfigMap", "config", {"data": {"token": TOKEN}})
)
FAILS = """
- name: Fail on demand
  ansible.builtin.fail: {{msg: not today}}
  when: lookup('fileglob', '{folder}/fails') | length > 0
"""
BY_SPEC = "- ansible.builtin.include_role: {name: '{{ how }}'}\n"


@pytest.fixture(scope="module")
def approving(shared_project: Project) -> Operator:
    """An operator whose objects select their role. Each test has other objects."""
    project = shared_project
    project.permit({"apiGroups": [""], "resources": ["services", "secrets", "configmaps"], "verbs": ["*"]})
    roles = {
        "plain": ROLE,
        "fails": FAILS.format(folder=project.folder) + ROLE,
        "services": SERVICES,
        "generates": GENERATES,
        "thing": BY_SPEC,
    }
    for name, tasks in roles.items():
        project.role(name, tasks)
    project.watch("thing")
    return project.start()


@pytest.fixture
def shared(shared_project: Project, api: Api) -> Things:
    """The objects of that operator."""
    return Things(api, shared_project.namespace)


APPROVE = {OURS + "mode": "approve"}


@pytest.mark.full
@pytest.mark.xdist_group("modes")
def test_after_a_failed_plan_a_plan_that_succeeds_ends_the_failure_in_ready_and_the_mode_apply_leaves_no_config_map(
    approving: Operator, shared_project: Project, shared: Things, api: Api
) -> None:
    maps = f"/api/v1/namespaces/{shared.namespace}/configmaps"
    shared.create("failing", {"size": 1, "how": "fails"}, annotations=APPROVE)
    plan = await_plan(shared, "failing")
    shared_project.write("fails", "")
    request_plan(approving, shared, "failing")
    await_plan(shared, "failing", "PlanFailed")
    assert api.call("GET", f"{maps}/{plan['configMap']}") is None
    assert shared.conditions("failing")["Ready"]["reason"] == "PlanFailed"
    assert "not today" in shared.conditions("failing")["Planned"]["message"]

    (shared_project.folder / "fails").unlink()
    again = await_plan(shared, "failing")
    ready = shared.conditions("failing")["Ready"]
    assert (ready["status"], ready["reason"]) == ("Unknown", "PlanNotExecuted")
    assert "Reconciling" not in shared.conditions("failing")
    shared.merge("failing", {"metadata": {"annotations": {OURS + "mode": None}}})
    shared.await_success("failing")
    wait_until(lambda: api.call("GET", f"{maps}/{again['configMap']}") is None, "the removal of the ConfigMap")
    wait_until(lambda: plan_of(shared, "failing") == {}, "the removal of the plan")
    assert shared.conditions("failing")["Planned"]["status"] == "False"
    assert api.call("GET", f"{maps}/failing-config") is not None


@pytest.mark.xdist_group("modes")
def test_an_approved_plan_is_executed_once_and_only_if_nothing_changed(
    approving: Operator, shared_project: Project, shared: Things, api: Api
) -> None:
    space = shared.namespace
    core = f"/api/v1/namespaces/{space}"
    operator, things = approving, shared
    things.create("one", {"size": 1, "how": "plain"}, annotations=APPROVE)
    plan = await_plan(things, "one")
    assert plan["hash"] in things.conditions("one")["Planned"]["message"]
    approve(things, "one", "another")
    assert "is not the current plan" in await_stale(things, "one", "another")
    assert operator.runs("one") == []
    approve(things, "one", plan["hash"])
    await_approval(things, "one", "Succeeded", plan["hash"])
    things.await_success("one")
    assert api.call("GET", f"{core}/configmaps/one-config")["data"]["size"] == "1"
    assert api.call("GET", f"{core}/secrets/one-credentials") is not None
    assert things.get("one")["status"]["size"] == "1"
    assert things.conditions("one")["Planned"]["reason"] == "Executed"

    # The same approval again: no second run, and nothing is left to do.
    approve(things, "one", "")
    request_plan(operator, things, "one", plan["hash"])
    request_plan(operator, things, "one")
    assert await_plan(things, "one", "NoChanges", after=plan["hash"])["approval"]["state"] == "Succeeded"
    assert len(operator.runs("one")) == 1

    # An object that the plan read changes: nothing is written.
    things.merge("one", {"spec": {"size": 2}})
    plan = await_plan(things, "one")
    assert [(each["verb"], each["name"], each["fields"]) for each in plan["changes"]] == [
        ("change", "one-config", ["data.size"]),
        ("change", "one", ["status.size"]),
    ]
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "input"}, "data": {"a": "b"}})
    before = dump(api, space)
    approve(things, "one", plan["hash"])
    assert f"an object that the plan read changed: {core}/configmaps/input" in await_stale(things, "one", plan["hash"])
    assert changed(before, dump(api, space)) == {f"/apis/test.example.com/v1/things/{space}/one"}
    assert things.conditions("one")["Planned"]["reason"] == "PlanStale"

    # So does the role, and the object that it would write.
    plan = plan_of(things, "one")
    shared_project.role("thing", BY_SPEC + "# edited\n")
    approve(things, "one", plan["hash"])
    assert "the role, playbook or settings changed" in await_stale(things, "one", plan["hash"])
    plan = plan_of(things, "one")
    api.call("PATCH", f"{core}/configmaps/one-config", {"data": {"size": "7"}}, "application/merge-patch+json")
    approve(things, "one", plan["hash"])
    assert "change ConfigMap" in await_stale(things, "one", plan["hash"])
    assert api.call("GET", f"{core}/configmaps/one-config")["data"]["size"] == "7"
    assert len(operator.runs("one")) == 1

    # An approval of the new plan ends the condition.
    request_plan(operator, things, "one")
    plan = plan_of(things, "one")
    approve(things, "one", plan["hash"])
    await_approval(things, "one", "Succeeded", plan["hash"])
    assert api.call("GET", f"{core}/configmaps/one-config")["data"]["size"] == "2"
    assert things.conditions("one")["PlanStale"]["status"] == "False"


@pytest.mark.xdist_group("modes")
@pytest.mark.usefixtures("approving")
def test_an_approval_covers_unknown_and_random_values_but_not_ones_that_differ(shared: Things, api: Api) -> None:
    core = f"/api/v1/namespaces/{shared.namespace}"
    things = shared
    # Values that the API server chooses are unknown.
    things.create("served", {"how": "services"}, annotations=APPROVE)
    plan = await_plan(things, "served")
    text = api.call("GET", f"{core}/configmaps/{plan['configMap']}")["data"]["changes.yaml"]
    assert "url: http://(known after apply):80/path" in text
    assert "port: port-(known after apply)" in text
    assert "uid: (known after apply)" in text
    assert "198." not in text
    approve(things, "served", plan["hash"])
    await_approval(things, "served", "Succeeded", plan["hash"])
    web, node = (api.call("GET", f"{core}/services/{name}") for name in ("web", "web-node"))
    assert node["metadata"]["labels"] == {"patched": "yes", "json": "yes"}
    assert api.call("GET", f"{core}/configmaps/addresses")["data"] == {
        "url": f"http://{web['spec']['clusterIP']}:80/path",
        "port": f"port-{node['spec']['ports'][0]['nodePort']}",
        "uid": node["metadata"]["uid"],
    }

    # Random values of new Secrets are covered, other ones are named.
    things.create("random", {"size": 1, "how": "generates"}, annotations=APPROVE)
    plan = await_plan(things, "random")
    assert plan["random"] == [f"Secret {shared.namespace}/password data.password"]
    assert "differing" not in plan
    assert "The approval covers random values of new Secrets" in things.conditions("random")["Planned"]["message"]
    approve(things, "random", plan["hash"])
    await_approval(things, "random", "Succeeded", plan["hash"])
    secret = api.call("GET", f"{core}/secrets/password")

    things.merge("random", {"spec": {"size": 2}})
    second = await_plan(things, "random", after=plan["hash"])
    assert second["differing"] == [f"ConfigMap {shared.namespace}/config data.token"]
    assert "so that the plan cannot be executed: ConfigMap" in things.conditions("random")["Planned"]["message"]
    approve(things, "random", second["hash"])
    await_stale(things, "random", second["hash"])
    assert api.call("GET", f"{core}/configmaps/config")["data"] == {"token": "x"}
    assert api.call("GET", f"{core}/secrets/password")["data"] == secret["data"]


OTHER_WRITE = (
    keep("the configuration", "ConfigMap", f"{NAME}-config", {"data": {"size": "1"}})
    + """
- name: Wait until the test continues
  ansible.builtin.wait_for:
    path: "{{ playbook_dir }}/continue"
  when: not ansible_check_mode and wait | default(false)
"""
    + keep("no plan", "ConfigMap", f"{NAME}-config", {"data": {"size": "2"}}, when="not ansible_check_mode")
    + keep("the last object", "ConfigMap", f"{NAME}-last")
)


@pytest.mark.nightly
def test_a_killed_run_of_an_approved_plan_is_not_repeated_an_approval_outlives_the_operator_and_finalizers_need_one(
    project: Project, things: Things, api: Api
) -> None:
    core = f"/api/v1/namespaces/{project.namespace}"
    allow_secrets(project)
    project.role("plain", ROLE)
    project.role("other", OTHER_WRITE)
    project.role("thing", BY_SPEC)
    project.watch("thing", mode="approve", finalizer={"name": "test.example.com/undo", "vars": {"size": 9}})
    operator = project.start()

    # The first write that the plan does not contain ends the run.
    things.create("one", {"size": 1, "how": "other"})
    plan = await_plan(things, "one", "Partial")
    approve(things, "one", plan["hash"])
    why = await_stale(things, "one", plan["hash"])
    assert f"change ConfigMap {project.namespace}/one-config: data.size" in why
    assert api.call("GET", f"{core}/configmaps/one-config")["data"] == {"size": "1"}
    assert api.call("GET", f"{core}/configmaps/one-last") is None
    assert await_plan(things, "one", "Partial", after=plan["hash"])["approval"]["state"] == "Refused"
    assert things.conditions("one")["PlanStale"]["status"] == "True"

    things.create("three", {"size": 1, "how": "plain"})
    later = await_plan(things, "three")
    things.create("two", {"wait": True, "how": "other"})
    plan = await_plan(things, "two", "Partial")
    approve(things, "two", plan["hash"])
    await_approval(things, "two", "Running", plan["hash"])
    wait_until(lambda: api.call("GET", f"{core}/configmaps/two-config"), "the first write of the run")
    operator.kill()
    approve(things, "three", later["hash"])
    operator = project.start()
    assert await_plan(things, "two", "Partial", after=plan["hash"])["approval"] == {
        **plan_of(things, "two")["approval"],
        "hash": plan["hash"],
        "state": "Interrupted",
    }
    request_plan(operator, things, "two")
    assert operator.lines(msg="Run started", name="two") == []
    assert api.call("GET", f"{core}/configmaps/two-last") is None

    await_approval(things, "three", "Succeeded", later["hash"])
    assert things.get("three")["metadata"]["finalizers"] == ["test.example.com/undo"]
    things.delete("three")
    wait_until(lambda: plan_of(things, "three").get("finalizer"), "the plan of the finalizer")
    plan = plan_of(things, "three")
    assert api.call("GET", f"{core}/configmaps/three-config")["data"]["size"] == "1"
    approve(things, "three", plan["hash"])
    things.await_gone("three")
    operator.await_line("Run ended", name="three", outcome="succeeded")
