"""`prune`: an object that several resources use stays until none of them uses it, or while this is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

ROLE = """
- name: Fail at once
  ansible.builtin.fail: {msg: no theme}
  when: fails | default(false) | bool
- name: Keep the theme, which all resources of the namespace share
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "theme-{{ theme }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {name: "{{ theme }}"}
"""
READER = """
- name: Read the theme
  kubernetes.core.k8s_info:
    {kind: ConfigMap, name: theme-dark, namespace: "{{ ansible_operator_meta.namespace }}"}
"""
DARK, LIGHT = {"theme": "dark"}, {"theme": "light"}


@pytest.fixture
def themes(api: Api, namespace: str) -> Any:
    def found() -> set[str]:
        items = api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
        names = {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}
        return {name for name in names if name.startswith("theme-")}

    return found


def await_prunable(things: Things, name: str, reason: str) -> dict[str, Any]:
    def reported() -> dict[str, Any] | None:
        condition = things.conditions(name).get("Prunable", {})
        return condition if condition.get("reason") == reason else None

    found = wait_until(reported, f"Prunable with reason {reason} on {name}")
    assert found is not None
    return found


def test_an_object_stays_until_no_other_resource_uses_it(project: Project, things: Things, themes: Any) -> None:
    project.role("shop", ROLE)
    project.watch("shop", prune="delete")
    operator = project.start()
    for name in ("one", "two"):
        things.create(name, DARK)
        things.await_success(name)

    things.merge("one", {"spec": LIGHT})
    condition = await_prunable(things, "one", "InUse")
    assert condition["status"] == "False"
    assert condition["message"] == (
        f"ConfigMap {things.namespace}/theme-dark: no longer used by this resource; in use by Thing {things.namespace}"
        "/two."
    )
    assert themes() == {"theme-dark", "theme-light"}
    things.merge("two", {"spec": LIGHT})
    wait_until(lambda: themes() == {"theme-light"}, "the object that nothing uses any more to be deleted")
    await_prunable(things, "one", "Pruned")
    assert operator.runs("one")[-1]["reason"] == "prune check"
    assert len(operator.runs("two")) == 2


@pytest.mark.full
def test_an_object_that_a_resource_of_another_watch_without_prune_reads_stays_until_that_resource_is_gone(
    project: Project, things: Things, themes: Any, api: Api
) -> None:
    project.role("shop", ROLE)
    project.role("reader", READER)
    project.watch("shop", prune="delete")
    reader = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached", "role": "reader"}
    project.watches.append(reader)
    operator = project.start()
    things.create("one", DARK)
    things.await_success("one")
    path = f"/apis/cache.example.com/v1alpha1/namespaces/{things.namespace}/memcacheds"
    cache = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": {"name": "cache"}}
    api.call("POST", path, {**cache, "spec": {"size": 1}})
    wait_until(lambda: operator.runs("cache"), "the run that reads the object")

    things.merge("one", {"spec": LIGHT})
    condition = await_prunable(things, "one", "InUse")
    assert f"in use by Memcached {things.namespace}/cache" in condition["message"]
    assert themes() == {"theme-dark", "theme-light"}
    api.call("DELETE", f"{path}/cache")
    wait_until(lambda: themes() == {"theme-light"}, "the object that nothing uses any more to be deleted")


@pytest.mark.full
def test_after_a_restart_an_object_stays_until_every_resource_has_completed_a_run(
    project: Project, things: Things, themes: Any
) -> None:
    project.role("shop", ROLE)
    project.watch("shop", prune="delete", skipUnchanged=True)
    operator = project.start()
    for name in ("one", "two", "three"):
        things.create(name, DARK)
        things.await_success(name)
    assert operator.stop() == 0
    things.merge("one", {"spec": LIGHT})
    things.merge("three", {"spec": {"fails": True}})

    operator = project.start()
    condition = await_prunable(things, "one", "Waiting")
    assert condition["status"] == "Unknown"
    assert f"Thing {things.namespace}/three (its last run failed)" in condition["message"]
    assert _skipped(operator, "two") == 1
    wait_until(lambda: operator.runs("two"), "a run of the skipped resource, whose uses are unknown")
    assert operator.runs("two")[0]["reason"] == "prune check"
    assert themes() == {"theme-dark", "theme-light"}

    things.merge("three", {"spec": {"fails": False, **LIGHT}})
    condition = await_prunable(things, "one", "InUse")
    assert f"in use by Thing {things.namespace}/two." in condition["message"]
    things.delete("two")
    wait_until(lambda: themes() == {"theme-light"}, "the object that nothing uses any more to be deleted")


def _skipped(operator: Operator, name: str) -> int:
    return len(operator.lines(msg="Run skipped", name=name))
