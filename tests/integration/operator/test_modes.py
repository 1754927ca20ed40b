"""Modes `plan` and `approve`: what a run would change is in the status, and only an approved plan is executed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.integration.operator.conftest import wait_until
from tests.integration.operator.test_plan import dump

if TYPE_CHECKING:
    from tests.integration.operator.conftest import Api, Operator, Project, Things

OURS = "ansible.sdk.operatorframework.io/"
Json = dict[str, Any]
PASSWORD = "a-secret-password"
ROLE = """
    - name: Read the input
      kubernetes.core.k8s_info:
        api_version: v1
        kind: ConfigMap
        namespace: "{{ ansible_operator_meta.namespace }}"
        name: input
      register: input
    - name: Keep the configuration
      kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: ConfigMap
          metadata:
            name: "{{ ansible_operator_meta.name }}-config"
            namespace: "{{ ansible_operator_meta.namespace }}"
          data:
            size: "{{ size | string }}"
            url: "db://user:a-secret-password@db"
    - name: Keep the password
      kubernetes.core.k8s:
        definition:
          apiVersion: v1
          kind: Secret
          metadata:
            name: "{{ ansible_operator_meta.name }}-credentials"
            namespace: "{{ ansible_operator_meta.namespace }}"
          stringData: {password: a-secret-password}
    - name: Write the status
      operator_sdk.util.k8s_status:
        api_version: test.example.com/v1
        kind: Thing
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
        status: {size: "{{ size | int }}"}
"""


def plan_of(things: Things, name: str) -> Json:
    found: Json = ((things.get(name) or {}).get("status") or {}).get("plan") or {}
    return found


def await_plan(things: Things, name: str, reason: str = "Changes", *, after: str = "") -> Json:
    """Wait for a plan of the present generation, other than the one with the hash `after`."""

    def made() -> Json | None:
        obj = things.get(name) or {}
        condition = things.conditions(name).get("Planned", {})
        plan = plan_of(things, name)
        is_current = condition.get("observedGeneration") == obj["metadata"]["generation"]
        is_made = is_current and condition.get("reason") == reason and not (after and plan.get("hash") == after)
        return (plan or condition) if is_made else None

    found = wait_until(made, f"a plan of {name}, {reason}; it has {plan_of(things, name)} {things.conditions(name)}")
    assert found is not None
    return found


def changed(before: dict[str, Json], after: dict[str, Json]) -> set[str]:
    """Return the paths of the objects that differ, without Events."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return {path for path in differing if "/events/" not in path}


def request_plan(operator: Operator, things: Things, name: str) -> None:
    """Request a plan, and wait for its end."""
    count = len(operator.lines(msg="Plan ended", name=name))
    things.merge(name, {"metadata": {"annotations": {OURS + "run-requested": str(count)}}})
    wait_until(lambda: len(operator.lines(msg="Plan ended", name=name)) > count, f"the next plan of {name}")


def allow_secrets(project: Project) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/operator-{project.namespace}"
    role = project.api.call("GET", path)
    role["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "patch"]})
    project.api.call("PUT", path, role)


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
    assert conditions["Ready"]["reason"] == "AwaitsApproval"
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
    data = {"size": "2", "url": "db://user:a-secret-password@db"}
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "one-config"}, "data": data})
    secret = {"metadata": {"name": "one-credentials"}, "stringData": {"password": PASSWORD}}
    api.call("POST", f"{core}/secrets", secret)
    things.merge("one", {"status": {"size": 2}}, "status")
    request_plan(operator, things, "one")
    empty = await_plan(things, "one", "NoChanges")
    assert empty["changes"] == []
    assert "configMap" not in empty
    assert api.call("GET", f"{core}/configmaps/{plan['configMap']}") is None
    assert things.conditions("one")["Ready"]["status"] == "True"


def test_a_plan_that_fails_is_reported_and_retried(project: Project, things: Things, api: Api) -> None:
    project.role(
        "thing",
        """
        - name: Fail
          ansible.builtin.fail:
            msg: not today
          when: size == 1
        """,
    )
    project.watch("thing", mode="approve", markUnsafe=False)
    operator = project.start()
    things.create("one", {"size": 1})
    await_plan(things, "one", "PlanFailed")
    assert "not today" in things.conditions("one")["Planned"]["message"]
    wait_until(lambda: len(operator.lines(msg="Plan ended", name="one")) > 1, "a retry")
    things.merge("one", {"spec": {"size": 2}})
    assert await_plan(things, "one", "NoChanges")["changes"] == []
