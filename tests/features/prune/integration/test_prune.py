"""`prune`: objects that a role no longer uses are reported or deleted, and nothing else is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.core.kube.state import StateError
from runner.features.prune.records import RecordStore, storage
from runner.values.errors import ConflictError
from runner.values.objects import GVK, RUN_REQUESTED, ObjectKey, ObjectRef
from tests.kit.tasks import NAME, keep
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

KEEP = "ansible.sdk.operatorframework.io/prune"
ADOPT = "ansible.sdk.operatorframework.io/adopt"
WANTED = "optional | default(true) | bool"


def config(name: str, annotations: dict[str, str] | None = None, **more: str) -> str:
    """A task that keeps a ConfigMap whose name ends so."""
    metadata = {"labels": {"app": "shop"}, "annotations": annotations or {}}
    return keep(name, "ConfigMap", f"{NAME}-{name}", {"metadata": metadata}, **more)


ROLE = (
    config("{{ suffix | default('a') }}")
    + config("optional", when=WANTED)
    + config("{{ item }}", loop="{{ items_ | default(['one', 'two', 'three']) }}")
    + config("kept", {KEEP: "false"}, when=WANTED)
    + config("adopted", {ADOPT: "true"}, when=WANTED)
    + """
- name: Keep an object with kubectl
  ansible.builtin.command: {cmd: kubectl apply -f -, stdin: "{{ written | to_json }}"}
  vars:
    written:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}-kubectl", namespace: "{{ ansible_operator_meta.namespace }}"}
  changed_when: false
  when: optional | default(true) | bool
- name: Fail halfway
  ansible.builtin.fail: {msg: halfway}
  when: fails | default(false) | bool
"""
)
OMITS = (
    """
- name: Include more tasks
  ansible.builtin.include_tasks: more.yml
  when: how | default('') != 'include'
- name: Try
  block:
    - name: Fail in the block
      ansible.builtin.fail: {msg: rescued}
      when: how | default('') == 'rescue'
"""
    + "\n".join(f"    {line}" for line in config("block").splitlines())
    + """
  rescue:
    - name: Rescue
      ansible.builtin.debug: {msg: rescued}
- name: Read a directory
  ansible.builtin.command: "{{ 'false' if how | default('') in ['ignored', 'hidden'] else 'true' }}"
  register: directory
  changed_when: false
  ignore_errors: "{{ how | default('') == 'ignored' }}"
  failed_when: directory.rc != 0 and how | default('') != 'hidden'
"""
    + config("{{ item }}", loop="{{ [] if directory.rc else ['read'] }}")
    + """
- name: End the play
  ansible.builtin.meta: end_play
  when: how | default('') == 'end'
"""
    + config("end")
)
MORE = config("include")
WHY = {
    "include": "-include: not used by the last run, but kept, because the include 'Include more tasks' was",
    "rescue": "-block: not used by the last run, but kept, because a failure of the task 'Fail in the block'",
    "ignored": "-read: not used by the last run, but kept, because a failure of the task 'Read a directory' was",
    "hidden": "-read: not used by the last run, but kept, because failed_when hid a failure of the task 'Read a dir",
    "end": "-end: not used by the last run, but kept, because the task 'End the play' ended its play or role (",
}
PARTS = """
- name: Include the users
  ansible.builtin.include_tasks: more.yml
  loop: "{{ users }}"
""" + config("{{ item }}", loop="{{ caches }}")
USER = config("user-{{ item }}")


class Maps:
    """ConfigMaps of a namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def names(self, owner: str) -> set[str]:
        items = self._api.call("GET", self.path)["items"]
        names = {item["metadata"]["name"] for item in items if not item["metadata"].get("deletionTimestamp")}
        return {name.removeprefix(f"{owner}-") for name in names if name.startswith(f"{owner}-")}

    def create(self, name: str, **metadata: Any) -> None:
        self._api.call("POST", self.path, {"metadata": {"name": name, **metadata}})


@pytest.fixture
def maps(api: Api, namespace: str) -> Maps:
    return Maps(api, namespace)


def run_again(things: Things, operator: Operator, name: str, until: int) -> None:
    """Request runs until this number has ended."""
    while len(operator.runs(name)) < until:
        before = len(operator.runs(name))
        things.merge(name, {"metadata": {"annotations": {RUN_REQUESTED: str(before)}}})
        wait_until(lambda before=before: len(operator.runs(name)) > before, "another run")  # type: ignore[misc]


def kubectl_path(devcluster: DevCluster) -> dict[str, str]:
    return {"PATH": f"{Path(devcluster.kubectl).parent}{os.pathsep}{os.environ['PATH']}"}


def test_objects_that_a_role_no_longer_writes_are_pruned_and_all_others_survive(
    project: Project, things: Things, maps: Maps, devcluster: DevCluster
) -> None:
    project.role("shop", ROLE)
    project.watch("shop", prune="delete")
    maps.create("one-adopted", labels={"app": "shop"})
    operator = project.start(environment=kubectl_path(devcluster))
    created = things.create("one", {"suffix": "a"})
    things.create("half", {"suffix": "a"})
    things.await_success("one")
    things.await_success("half")
    all_of_them = {"a", "optional", "one", "two", "three", "kept", "adopted", "kubectl"}
    assert maps.names("one") == maps.names("half") == all_of_them
    reference = {"apiVersion": created["apiVersion"], "kind": "Thing", "name": "one", "uid": created["metadata"]["uid"]}
    maps.create("one-copied", labels={"app": "shop"}, ownerReferences=[reference])
    maps.create("one-foreign", labels={"app": "shop"})

    things.merge("half", {"spec": {"optional": False, "fails": True}})
    things.merge("one", {"spec": {"suffix": "b", "optional": False, "items_": ["one"]}})
    wait_until(lambda: operator.runs("one")[-1]["reason"] == "prune check", "the run that confirms")
    kept = {"b", "one", "kept", "adopted", "copied", "foreign"}
    wait_until(lambda: maps.names("one") == kept, "the unused objects to be deleted")
    condition = things.await_condition("one", "Prunable", "False")
    assert condition["reason"] == "Pruned"
    assert f"ConfigMap {things.namespace}/one-optional" in condition["message"]
    things.await_condition("half", "Failure")
    run_again(things, operator, "half", 4)
    assert maps.names("half") == all_of_them
    run_again(things, operator, "one", 5)
    assert maps.names("one") == kept
    assert operator.runs("one")[-1]["outcome"] == "succeeded"
    assert "dependent changed" not in {run["reason"] for run in operator.runs("one")}


@pytest.mark.full
def test_runs_that_leave_out_tasks_prune_nothing_that_these_wrote(project: Project, things: Things, maps: Maps) -> None:
    project.role("omits", OMITS)
    project.write("roles/omits/tasks/more.yml", MORE)
    project.role("parts", PARTS)
    project.write("roles/parts/tasks/more.yml", USER)
    project.role("shop", "- ansible.builtin.include_role: {name: \"{{ role | default('omits') }}\"}\n")
    project.watch("shop", prune="delete")
    operator = project.start()
    things.create("parts", {"role": "parts", "users": ["a", "b"], "caches": ["x", "y"]})
    ways = [*WHY]
    for how in ways:
        things.create(how)
    for how in ways:
        things.await_success(how)
        assert maps.names(how) == {"include", "block", "read", "end"}
        things.merge(how, {"spec": {"how": how}})
    for how in ways:
        things.await_success(how)
        run_again(things, operator, how, 4)
        assert maps.names(how) == {"include", "block", "read", "end"}
        assert "prune check" not in {run["reason"] for run in operator.runs(how)}
        prunable = things.conditions(how)["Prunable"]
        assert (prunable["status"], prunable["reason"]) == ("Unknown", "TasksOmitted")
        assert WHY[how] in prunable["message"]

    # An include over an empty loop keeps its own objects, and no other ones.
    things.await_success("parts")
    assert maps.names("parts") == {"user-a", "user-b", "x", "y"}
    things.merge("parts", {"spec": {"users": [], "caches": ["x"]}})
    left = {"user-a", "user-b", "x"}
    wait_until(lambda: maps.names("parts") == left, "the object of the task that ran to be deleted")
    prunable = things.await_condition("parts", "Prunable", "Unknown")
    users = f"ConfigMap {things.namespace}/parts-user-a, ConfigMap {things.namespace}/parts-user-b: "
    assert users in prunable["message"]
    assert "the include 'Include the users' was skipped" in prunable["message"]
    assert "roles/parts/tasks/main.yml:2)" in prunable["message"]


@pytest.mark.full
def test_unused_objects_are_reported_and_a_restarted_operator_deletes_them_if_the_watch_says_so(
    project: Project, things: Things, maps: Maps
) -> None:
    project.role("shop", config("{{ suffix }}"))
    project.watch("shop", prune="report")
    operator = project.start()
    things.create("one", {"suffix": "a"})
    things.await_success("one")
    things.merge("one", {"spec": {"suffix": "b"}})
    things.await_success("one")
    run_again(things, operator, "one", 3)
    condition = things.await_condition("one", "Prunable")
    assert condition["reason"] == "Unused"
    assert f"ConfigMap {things.namespace}/one-a" in condition["message"]
    assert maps.names("one") == {"a", "b"}
    assert operator.stop() == 0

    project.watches[0]["prune"] = "delete"
    operator = project.start()
    wait_until(lambda: maps.names("one") == {"b"}, "the unused object to be deleted")
    things.await_condition("one", "Prunable", "False")
    assert [run["reason"] for run in operator.runs("one")] == ["present at start", "prune check"]

    project.role("shop", config("{{ other | default('c') }}"))
    assert operator.stop() == 0
    operator = project.start()
    wait_until(lambda: operator.runs("one"), "the first run of the changed role")
    run_again(things, operator, "one", 2)
    wait_until(lambda: maps.names("one") == {"c"}, "the object of the former role to be deleted")
    things.delete("one")
    wait_until(lambda: not records(project), "the record to be removed")


def records(project: Project) -> list[dict[str, Any]]:
    """Return the stored records."""
    paths = (project.folder / "runs" / "created-objects").glob("*.json")
    return [json.loads(json.loads(path.read_text())["record"]) for path in paths]


IN_POD = """
import sys
from runner.base.credentials import auth
auth.pod_namespace = lambda host: "{namespace}"
from runner.cli.main import main
sys.exit(main())
"""


def recorded(maps: Maps, api: Api) -> set[str]:
    """Return the names in the records that are ConfigMaps."""
    items = api.call("GET", f"{maps.path}?labelSelector=app.kubernetes.io/component%3Dcreated-objects")["items"]
    found = [json.loads(item["data"]["record"]) for item in items]
    return {each["name"].rpartition("-")[2] for record in found for each in record["objects"]}


def _kill_after(operator: Operator, maps: Maps, name: str) -> None:
    wait_until(lambda: name in maps.names("one"), f"{name} to be created")
    operator.kill()


@pytest.mark.nightly
def test_a_kill_after_each_write_loses_nothing_from_the_records_of_an_operator_in_a_pod(
    project: Project, things: Things, maps: Maps, api: Api
) -> None:
    program = [sys.executable, str(project.write("in_pod.py", IN_POD.format(namespace=project.namespace)))]
    project.grant([""], ["configmaps"])
    names = ["a", "b", "c"]
    tasks: Iterable[str] = (
        config(name, when="wanted | default(true) | bool")
        + f"- name: Wait after {name}\n  ansible.builtin.pause: {{seconds: 600}}\n"
        + f"  when: not lookup('ansible.builtin.fileglob', '{project.folder}/{name}')\n"
        for name in names
    )
    project.role("shop", "".join(tasks))
    project.watch("shop", prune="delete")
    maps.create("one-foreign")
    operator = project.start(program=program)
    things.create("one")
    for name in names:
        _kill_after(operator, maps, name)
        assert recorded(maps, api) == maps.names("one") - {"foreign"}
        project.write(name, "")
        operator = project.start(program=program)
    things.await_success("one")
    assert maps.names("one") == {*names, "foreign"}
    things.merge("one", {"spec": {"wanted": False}})
    wait_until(lambda: maps.names("one") == {"foreign"}, "all created objects to be deleted")
    things.delete("one")
    selected = f"{maps.path}?labelSelector=app.kubernetes.io/component%3Dcreated-objects"
    wait_until(lambda: not api.call("GET", selected)["items"], "the record to be removed")


async def test_records_in_configmaps_are_private_to_the_operator_and_refuse_an_outdated_writer(
    api: Api, devcluster: DevCluster, namespace: str, project: Project, tmp_path: Path
) -> None:
    owner = ObjectRef(GVK("test.example.com", "v1", "Thing"), ObjectKey("shop", "one"), "00-11")
    credentials = await auth.load(str(devcluster.kubeconfig), None, auth.HostEnvironment({}, tmp_path))
    async with Client(credentials) as client:
        first, second = (RecordStore(storage(client, namespace, tmp_path)) for _ in range(2))
        assert await first.load(owner.uid) is None
        await first.save(owner, "a")
        assert await second.load(owner.uid) == "a"
        await second.save(owner, "b")
        with pytest.raises(ConflictError, match="modified"):
            await first.save(owner, "c")
        assert await first.load(owner.uid) == "b"
        assert list(await first.owners()) == [owner]
        await first.remove(owner.uid)
        assert await second.load(owner.uid) is None
        await second.save(owner, "d")
        api.call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/ansible-operator-created-{owner.uid}")
        with pytest.raises(ConflictError, match="deleted"):
            await second.save(owner, "e")
        assert await second.load(owner.uid) is None
        await second.save(owner, "e")
        assert await first.load(owner.uid) == "e"
    credentials = await auth.load(str(project.kubeconfig), None, auth.HostEnvironment({}, tmp_path))
    async with Client(credentials) as client:
        with pytest.raises(StateError, match=r"add to the operator's Role in namespace kube-system: {apiGroups"):
            await RecordStore(storage(client, "kube-system", tmp_path)).load(owner.uid)
