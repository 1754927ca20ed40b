"""`ansible-operator plan` as a user runs it: it shows what a real run then does, and writes nothing itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from runner.features.plan.fields import ABSENT, FieldChange, normalised
from runner.sdk.devcluster import DevCluster
from tests.kit.tasks import NAME, keep, remove, status, task
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

UNCHANGED, FAILED, CHANGES = 0, 1, 2
Json = dict[str, Any]
_ELSEWHERE = re.compile(r"test-[0-9a-f]{10}|kube-.*|default")
_BY_OTHERS = {"leases", "nodes", "events", "componentstatuses", "ipaddresses", "servicecidrs"}
"""Kinds that the cluster itself writes at any time, outside the test's namespace."""


def config(text: str, name: str = "config") -> str:
    """A role that keeps the size of its resource, and a text."""
    data = {"size": "{{ size | string }}", "text": text}
    return keep("the configuration", "ConfigMap", f"{NAME}-{name}", {"data": data})


def dump(api: Api, namespace: str) -> dict[str, Json]:
    """Return every object of the namespace, and every other one that nobody else writes, by path."""
    made_later = [
        f"/api/v1/namespaces/{namespace}/{each}" for each in ("configmaps/kube-root-ca.crt", "serviceaccounts/default")
    ]
    wait_until(lambda: all(api.call("GET", path) for path in made_later), "the objects that each namespace has")
    found: dict[str, Json] = {}
    groups = [f"/apis/{each['preferredVersion']['groupVersion']}" for each in api.call("GET", "/apis")["groups"]]
    for base in ("/api/v1", *groups):
        for resource in api.call("GET", base)["resources"]:
            plural = resource["name"]
            if "/" in plural or "list" not in resource["verbs"]:
                continue
            for item in api.call("GET", f"{base}/{plural}")["items"]:
                meta = item["metadata"]
                space = meta.get("namespace") or (meta["name"] if plural == "namespaces" else "")
                is_ours = space == namespace and plural != "leases"
                if "deletionTimestamp" in meta:
                    continue  # CRDs of earlier tests still change
                if is_ours or not (plural in _BY_OTHERS or _ELSEWHERE.fullmatch(space)):
                    found[f"{base}/{plural}/{space}/{meta['name']}"] = item
    return found


def planned(done: subprocess.CompletedProcess[str]) -> Json:
    assert done.stdout, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def fields(change: Mapping[str, Any]) -> list[FieldChange]:
    return [
        FieldChange(each["path"], each.get("before", ABSENT), each.get("after", ABSENT)) for each in change["fields"]
    ]


def objects(api: Api, namespace: str, kinds: tuple[str, ...] = ("configmaps",)) -> dict[str, Json]:
    items = [item for kind in kinds for item in api.call("GET", f"/api/v1/namespaces/{namespace}/{kind}")["items"]]
    return {item["metadata"]["name"]: item for item in items}


@pytest.fixture
def administered(project: Project, devcluster: DevCluster) -> Project:
    """The project, and a user who may do everything."""
    project.kubeconfig = devcluster.kubeconfig
    return project


@pytest.mark.full
def test_a_plan_shows_what_the_run_then_does_and_nothing_once_that_is_done(
    project: Project, things: Things, api: Api
) -> None:
    names = ["small", "large", "third"]
    for number, name in enumerate(names):
        things.create(name, {"size": number})
    project.role("thing", config("first"))
    project.watch("thing")
    before = dump(api, project.namespace)
    done = project.plan("Thing/small", "--output", "json")
    assert (done.returncode, done.stderr) == (CHANGES, "")
    (resource,) = planned(done)["resources"]
    assert (resource["name"], resource["state"], resource["unplanned"]) == ("small", "complete", [])
    (create,) = resource["changes"]
    assert (create["verb"], create["kind"], create["name"]) == ("create", "ConfigMap", "small-config")
    (content,) = fields(create)
    assert dump(api, project.namespace) == before

    operator = project.start()
    for name in names:
        things.await_success(name)
    operator.stop()
    real = {
        name: normalised({"apiVersion": "v1", "kind": "ConfigMap", **obj}, with_status=False)
        for name, obj in objects(api, project.namespace).items()
    }
    assert content == FieldChange("", ABSENT, real["small-config"])
    before = dump(api, project.namespace)
    done = project.plan("--all", WATCH_NAMESPACE=project.namespace)
    assert (done.returncode, done.stdout, done.stderr) == (UNCHANGED, "Plan: no changes for 3 resources\n", "")

    project.role("thing", config("second"))
    done = project.plan("--all", "Thing", "-n", project.namespace)
    assert (done.returncode, done.stderr) == (CHANGES, "")
    assert done.stdout.splitlines() == [
        f"3 of 3 Thing resources: {', '.join(f'{project.namespace}/{name}' for name in sorted(names))}",
        "  ~ change ConfigMap <namespace>/<name>-config",
        "      data.text: first → second",
        "",
        "Plan: 3 of 3 resources with changes; objects: 3 to change",
    ]
    assert dump(api, project.namespace) == before

    # A failed task ends the plan; the changes until then are shown.
    project.role("thing", config("second", "settings") + task("Fail", "ansible.builtin.fail", {"msg": "not today"}))
    done = project.plan("Thing/small")
    assert done.returncode == FAILED
    assert f"  + create ConfigMap {project.namespace}/small-settings" in done.stdout
    assert f"Thing {project.namespace}/small: the plan failed" in done.stdout
    assert re.search(r"task 'Fail' \(.*/main.yml:\d+\) failed: not today", done.stdout)


ROGUE = """
import json, ssl, urllib.request

import yaml
from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={"kubeconfig": {"type": "path"}, "namespace": {"type": "str"}}, supports_check_mode=True
    )
    with open(module.params["kubeconfig"]) as file:
        config = yaml.safe_load(file)
    user = config["users"][0]["user"]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rogue"}, "data": {"a": "b"}}
    request = urllib.request.Request(
        config["clusters"][0]["cluster"]["server"] + "/api/v1/namespaces/" + module.params["namespace"] + "/configmaps",
        data=json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + user["token"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        module.exit_json(changed=True, created=json.loads(answer.read())["metadata"]["name"])


main()
"""
UNSUPPORTED = """
from ansible.module_utils.basic import AnsibleModule

AnsibleModule(argument_spec={}).exit_json(changed=True)
"""
DATABASE = """
from ansible.module_utils.basic import AnsibleModule

AnsibleModule(argument_spec={}, supports_check_mode=True).exit_json(changed=True)
"""
CONTAINERS = [{"name": "it", "image": "example.com/it"}]
TASKS = (
    """
- name: Write in spite of check mode
  rogue:
    kubeconfig: "{{ lookup('ansible.builtin.env', 'K8S_AUTH_KUBECONFIG') }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
- name: Apply with kubectl
  ansible.builtin.command:
    cmd: "{{ kubectl }} apply -f -"
    stdin: |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: applied, namespace: {{ ansible_operator_meta.namespace }}}
      data: {a: b}
  check_mode: false
  changed_when: true
- name: Read what kubectl applied
  kubernetes.core.k8s_info:
    api_version: v1
    kind: ConfigMap
    namespace: "{{ ansible_operator_meta.namespace }}"
    name: applied
  register: applied
  failed_when: applied.resources | length != 1
"""
    + remove("what exists", "ConfigMap", "existing")
    + keep("the password", "Secret", "credentials", {"stringData": {"password": "a-better-password"}})
    + keep("the connection", "ConfigMap", "connection", {"data": {"url": "db://user:a-better-password@db"}})
    + status(size=3)
    + """
- name: Run a command
  ansible.builtin.command: "true"
- name: Run it raw
  ansible.builtin.raw: "true"
- name: Run a module without check mode
  unsupported:
- name: Create a database from localhost
  database:
- name: Run it in the background
  ansible.builtin.command: "true"
  async: 30
  poll: 0
- name: Scale
  kubernetes.core.k8s_scale:
    kind: ReplicaSet
    api_version: apps/v1
    name: web
    namespace: "{{ ansible_operator_meta.namespace }}"
    replicas: 3
    wait: false
- name: Execute in a pod
  kubernetes.core.k8s_exec:
    namespace: "{{ ansible_operator_meta.namespace }}"
    pod: web
    command: "true"
  ignore_errors: true
- name: Look up
  ansible.builtin.debug:
    msg: "{{ lookup('pipe', 'true') }}"
- name: Leave out in check mode
  ansible.builtin.debug:
    msg: no
  when: not ansible_check_mode
- name: Leave out always
  ansible.builtin.debug:
    msg: no
  when: size > 100
"""
)


@pytest.mark.full
def test_no_task_can_write_and_each_that_was_not_planned_is_named(
    administered: Project, things: Things, api: Api, devcluster: DevCluster
) -> None:
    project, space = administered, administered.namespace
    project.write("roles/thing/library/rogue.py", ROGUE)
    project.write("roles/thing/library/unsupported.py", UNSUPPORTED)
    project.write("roles/thing/library/database.py", DATABASE)
    project.role("thing", TASKS.replace("{{ kubectl }}", str(devcluster.kubectl)))
    project.watch("thing")
    things.create("one", {"size": 1})
    core = f"/api/v1/namespaces/{space}"
    api.call("POST", f"{core}/configmaps", {"metadata": {"name": "existing"}})
    api.call(
        "POST", f"{core}/secrets", {"metadata": {"name": "credentials"}, "stringData": {"password": "an-old-password"}}
    )
    spec, labels, sets = {"containers": CONTAINERS, "schedulerName": "none"}, {"app": "web"}, f"{space}/replicasets"
    api.call("POST", f"{core}/pods", {"metadata": {"name": "web"}, "spec": spec})
    wanted = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 0, **wanted}}
    api.call("POST", f"/apis/apps/v1/namespaces/{sets}", body)
    path = f"/apis/apps/v1/namespaces/{sets}/web"
    wait_until(lambda: "observedGeneration" in api.call("GET", path)["status"], "the controller")
    before = dump(api, space)
    done = project.plan("things/one", "-n", space, "--output=json")
    assert dump(api, space) == before
    assert done.returncode == CHANGES, done.stdout + done.stderr
    assert "password" in done.stdout
    assert all(text not in done.stdout for text in ("a-better-password", "an-old-password", "YS1iZXR0ZXI"))
    (resource,) = planned(done)["resources"]
    assert resource["state"] == "partial"
    changes = {(each["verb"], each["kind"], each["name"]): each for each in resource["changes"]}
    assert list(changes) == [
        ("create", "ConfigMap", "rogue"),
        ("create", "ConfigMap", "applied"),
        ("delete", "ConfigMap", "existing"),
        ("change", "Secret", "credentials"),
        ("create", "ConfigMap", "connection"),
        ("change", "Thing", "one"),
    ]
    assert changes["change", "Secret", "credentials"]["fields"] == [
        {"path": "data.password", "before": "<masked>", "after": "<masked, changed>"}
    ]
    assert changes["create", "ConfigMap", "connection"]["fields"][0]["after"]["data"]["url"] == "db://user:********@db"
    assert changes["change", "Thing", "one"]["fields"] == [{"path": "status", "after": {"size": 3}}]
    assert {each["task"].rpartition(" : ")[2]: each["reason"] for each in resource["unplanned"]} == {
        "Run a command": "Command would have run if not in check mode",
        "Run it raw": "ansible.builtin.raw does not run in check mode",
        "Run a module without check mode": "remote module (unsupported) does not support check mode",
        "Create a database from localhost": "it reports a change outside the cluster",
        "Run it in the background": "it runs in the background, so that the plan can lack its changes",
        "Scale": "it reports a change, but sends no request in check mode",
        "Execute in a pod": f"refused get pods/exec {space}/web: it opens a session with a process in the cluster, "
        "which the API server cannot dry-run",
        "lookup pipe": "it runs its command for real, in plans too",
        "Leave out in check mode": "the role skips it in check mode: not ansible_check_mode",
    }
    assert all(f"{project.folder}/roles/thing/tasks/main.yml:" in each["path"] for each in resource["unplanned"])


def test_the_finalizer_is_planned_for_a_deleted_resource_and_a_paused_one_is_not(
    project: Project, things: Things, api: Api
) -> None:
    project.role("thing", config("x"))
    project.role("undo", remove("the configuration", "ConfigMap", f"{NAME}-config"))
    project.watch("thing", finalizer={"name": "test.example.com/undo", "role": "undo"})
    things.create("gone", {"size": 1}, finalizers=["test.example.com/undo"])
    api.call("POST", f"/api/v1/namespaces/{project.namespace}/configmaps", {"metadata": {"name": "gone-config"}})
    things.delete("gone")
    things.create("paused", {"size": 1}, annotations={"ansible.sdk.operatorframework.io/paused": "true"})
    done = project.plan("--all", "-n", project.namespace, "--output=json")
    assert done.returncode == CHANGES, done.stderr
    gone, paused = planned(done)["resources"]
    assert [(each["verb"], each["name"]) for each in gone["changes"]] == [("delete", "gone-config"), ("delete", "gone")]
    # The account may not list most kinds.
    assert (gone["finalizer"], gone["state"]) == (True, "partial")
    assert gone["unplanned"][0]["reason"].startswith("dependents that Kubernetes also deletes are unknown: ")
    assert (paused["state"], paused["changes"]) == ("skipped", [])
    things.merge("gone", {"metadata": {"finalizers": []}})


def test_the_deletion_of_a_resource_names_what_its_finalizer_and_kubernetes_delete(
    administered: Project, things: Things, api: Api
) -> None:
    project = administered
    project.role("thing", config("x"))
    project.role("undo", remove("the record", "ConfigMap", "record"))
    project.watch("thing", finalizer={"name": "test.example.com/undo", "role": "undo"})
    thing = things.create("one", {"size": 1}, finalizers=["test.example.com/undo"])
    uid = thing["metadata"]["uid"]

    def owned(kind: str, uid: str) -> Json:
        return {"apiVersion": "v1", "kind": kind, "name": "one", "uid": uid}

    maps = f"/api/v1/namespaces/{project.namespace}/configmaps"
    api.call("POST", maps, {"metadata": {"name": "record"}})
    reference = {**owned("Thing", uid), "apiVersion": "test.example.com/v1"}
    first = api.call("POST", maps, {"metadata": {"name": "first", "ownerReferences": [reference]}})
    below = owned("ConfigMap", first["metadata"]["uid"]) | {"name": "first"}
    api.call("POST", maps, {"metadata": {"name": "second", "ownerReferences": [below]}})
    # The garbage collector removes references to owners that do not exist.
    other = things.create("other", {"size": 1})
    shared = {**reference, "uid": other["metadata"]["uid"], "name": "other"}
    api.call("POST", f"/api/v1/namespaces/{project.namespace}/secrets", {
        "metadata": {"name": "shared", "ownerReferences": [reference, shared]}
    })  # fmt: skip
    before = things.get("one")
    done = project.plan("--delete", "Thing/one", "-n", project.namespace)
    assert done.returncode == CHANGES, done.stderr
    space = project.namespace
    assert done.stdout.splitlines() == [
        f"Thing {space}/one (deletion)",
        f"  - delete ConfigMap {space}/record",
        f"  - delete Thing {space}/one",
        f"  - delete ConfigMap {space}/first (by Kubernetes, with its owner)",
        f"  - delete ConfigMap {space}/second (by Kubernetes, with its owner)",
        "",
        "Plan: 1 of 1 resource with changes; objects: 4 to delete",
    ]
    assert things.get("one") == before
    things.merge("one", {"metadata": {"finalizers": []}})


@pytest.mark.full
def test_a_resource_in_a_file_is_planned_as_if_it_were_applied(administered: Project, things: Things, api: Api) -> None:
    project = administered
    project.role("thing", config("x") + status(size="{{ size }}"))
    project.watch("thing")
    space = project.namespace
    things.create("old", {"size": 1})
    (project.folder / "things").mkdir()

    def a_thing(name: str, size: int) -> Json:
        return {
            "apiVersion": "test.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": name},
            "spec": {"size": size},
        }

    items = [a_thing("old", 2), a_thing("new", 3), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}]
    (project.folder / "things/a.yaml").write_text(yaml.safe_dump_all(items))
    before = dump(api, space)
    done = project.plan("-f", "things", "-n", space, "--output=json")
    assert done.returncode == CHANGES, done.stdout
    assert "Objects of kinds that no watch is for are not planned" in done.stderr
    old, new = planned(done)["resources"]
    assert [(each["verb"], each["kind"], each["name"]) for each in old["changes"]] == [
        ("change", "Thing", "old"),
        ("create", "ConfigMap", "old-config"),
    ]
    assert FieldChange("spec.size", 1, 2) in fields(old["changes"][0])
    assert [(each["verb"], each["kind"], each["name"]) for each in new["changes"]] == [
        ("create", "Thing", "new"),
        ("create", "ConfigMap", "new-config"),
    ]
    assert {each["state"] for each in (old, new)} == {"complete"}
    assert new["changes"][1]["fields"][0]["after"]["data"]["size"] == "3"
    assert dump(api, space) == before
    (project.folder / "things/a.yaml").write_text(yaml.safe_dump(a_thing("UPPER", 3)))
    done = project.plan("-f", "things/a.yaml", "-n", space)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert re.match(r"error: things/a\.yaml:1: Thing \S+/UPPER: .*invalid", done.stderr, re.IGNORECASE | re.DOTALL)


def test_an_error_of_the_api_server_is_one_clear_message(project: Project) -> None:
    project.role("thing", config("x"))
    project.watch("thing")
    cases = {
        ("Thing/two",): rf"error: the cluster https://\S+ has no Thing 'two' in namespace {project.namespace}: .*",
        ("--all",): "error: .*forbidden.*; to plan the resources of one namespace, set --namespace",
    }
    for arguments, message in cases.items():
        done = project.plan(*arguments)
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert re.fullmatch(message, done.stderr.strip()), done.stderr
