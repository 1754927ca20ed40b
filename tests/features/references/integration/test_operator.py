"""Objects that run for a change of what they name."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

REFERENCES = [
    {"version": "v1", "kind": "Secret", "path": "spec.passwordSecret"},
    {"version": "v1", "kind": "ConfigMap", "selector": {"matchLabels": {"for": "things"}}},
]
SHOW = """
- name: Show why
  ansible.builtin.debug:
    msg: "{{ ansible_operator_run.reason }}: {{ ansible_operator_run.details }}"
"""
MAKE = """
- name: Write the password that the spec names
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ password_secret }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {key: "{{ 'made-by-the-role' | b64encode }}"}
- name: Use it
  ansible.builtin.fail: {msg: "the password is wrong"}
  when: lookup("kubernetes.core.k8s", kind="Secret", namespace=ansible_operator_meta.namespace,
        resource_name=password_secret).metadata.labels.wrong is defined
"""


def _secret(value: str) -> dict[str, Any]:
    return {"data": {"key": base64.b64encode(value.encode()).decode()}}


def test_a_changed_secret_or_labelled_config_map_triggers_objects_that_refer_to_it(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "password"}, **_secret("value-one")})
    project.role("thing", SHOW)
    project.grant([""], ["secrets", "configmaps"])
    project.watch("thing", references=REFERENCES)
    operator = project.start()
    things.create("one", {"passwordSecret": "password"})
    things.create("two", {"passwordSecret": {"name": "missing"}})
    for name in ("one", "two"):
        operator.await_line("Run ended", name=name, reason="created")
    label = {"metadata": {"labels": {"rotated": "yes"}}}
    api.call("PATCH", f"{core}/secrets/password", label, "application/merge-patch+json")
    api.call("PATCH", f"{core}/secrets/password", _secret("value-two"), "application/merge-patch+json")
    operator.await_line("Run ended", name="one", reason="reference changed", outcome="succeeded")
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "missing"}, **_secret("value-three")})
    operator.await_line("Run ended", name="two", reason="reference changed")
    started = operator.lines(msg="Run started", reason="reference changed")
    assert [line["details"] for line in started] == [
        [f"Secret {namespace}/password changed"],
        [f"Secret {namespace}/missing appeared"],
    ]
    settings = {"metadata": {"name": "settings", "labels": {"for": "things"}}, "data": {"a": "1"}}
    api.call("POST", f"{core}/configmaps", settings)
    for name in ("one", "two"):
        operator.await_line("A reference changed", name=name, why=f"ConfigMap {namespace}/settings appeared")
    assert operator.stop() == 0
    for value in ("value-one", "value-two", "value-three"):
        assert value not in operator.log
        assert base64.b64encode(value.encode()).decode() not in operator.log


def test_a_role_that_writes_what_its_object_names_runs_once_and_a_change_ends_the_wait_after_a_failure(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    project.role("thing", MAKE)
    project.grant([""], ["secrets"])
    project.watch("thing", references=REFERENCES[:1], retry={"delay": "1h", "maxDelay": "1h"})
    operator = project.start()
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "made"}, **_secret("not-yet")})
    things.create("one", {"passwordSecret": "made"})
    things.await_success("one")
    assert len(operator.runs("one")) == 1
    body = {"metadata": {"labels": {"wrong": "yes"}}, **_secret("from-somebody-else")}
    api.call("PATCH", f"{core}/secrets/made", body, "application/merge-patch+json")
    operator.await_line("Retrying the object with backoff", name="one")
    repaired = {"metadata": {"labels": {"wrong": None}}, **_secret("repaired")}
    api.call("PATCH", f"{core}/secrets/made", repaired, "application/merge-patch+json")
    things.await_success("one")
    runs = [(run["reason"], run["outcome"]) for run in operator.runs("one")]
    assert runs == [("created", "succeeded"), ("reference changed", "failed"), ("reference changed", "succeeded")]


def test_a_reference_that_changed_while_the_operator_was_down_is_used_at_the_next_start(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "password"}, **_secret("value-one")})
    project.role("thing", SHOW)
    project.grant([""], ["secrets"])
    project.watch("thing", references=REFERENCES[:1])
    operator = project.start()
    things.create("one", {"passwordSecret": "password"})
    operator.await_line("Run ended", name="one")
    assert operator.stop() == 0
    api.call("PATCH", f"{core}/secrets/password", _secret("value-two"), "application/merge-patch+json")
    operator = project.start()
    operator.await_line("Run ended", name="one", reason="present at start")
    assert len(operator.runs("one")) == 1
