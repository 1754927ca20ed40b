"""Objects that run for a change of what they name."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tests.kit.tasks import keep

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
MADE = {"data": {"key": "{{ 'made-by-the-role' | b64encode }}"}}
MAKE = (
    keep("the password", "Secret", "{{ password_secret }}", MADE)
    + """
- name: Use it
  ansible.builtin.fail: {msg: "the password is wrong"}
  when: lookup("kubernetes.core.k8s", kind="Secret", namespace=ansible_operator_meta.namespace,
        resource_name=password_secret).metadata.labels.wrong is defined
"""
)


def _secret(value: str) -> dict[str, Any]:
    return {"data": {"key": base64.b64encode(value.encode()).decode()}}


def test_a_changed_reference_triggers_its_objects_and_ends_a_wait_and_a_write_of_the_role_itself_does_not(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    core = f"/api/v1/namespaces/{namespace}"

    def change(name: str, body: dict[str, Any]) -> None:
        api.call("PATCH", f"{core}/secrets/{name}", body, "application/merge-patch+json")

    project.role("show", SHOW)
    project.role("make", MAKE)
    project.role("thing", "- ansible.builtin.include_role: {name: '{{ how | default(\"show\") }}'}\n")
    project.grant([""], ["secrets", "configmaps"])
    project.watch("thing", references=REFERENCES, retry={"delay": "1h", "maxDelay": "1h"})
    for name in ("password", "made"):
        api.call("POST", f"{core}/secrets", {"metadata": {"name": name}, **_secret("value-one")})
    operator = project.start()
    things.create("one", {"passwordSecret": "password"})
    things.create("two", {"passwordSecret": {"name": "missing"}})
    for name in ("one", "two"):
        operator.await_line("Run ended", name=name, reason="created")
    change("password", {"metadata": {"labels": {"rotated": "yes"}}})
    change("password", _secret("value-two"))
    operator.await_line("Run ended", name="one", reason="reference changed", outcome="succeeded")
    api.call("POST", f"{core}/secrets", {"metadata": {"name": "missing"}, **_secret("value-three")})
    operator.await_line("Run ended", name="two", reason="reference changed")
    started = operator.lines(msg="Run started", reason="reference changed")
    assert [line["details"] for line in started] == [
        [f"Secret {namespace}/password changed"],
        [f"Secret {namespace}/missing appeared"],
    ]

    things.create("maker", {"passwordSecret": "made", "how": "make"})
    things.await_success("maker")
    assert len(operator.runs("maker")) == 1
    change("made", {"metadata": {"labels": {"wrong": "yes"}}, **_secret("from-somebody-else")})
    operator.await_line("Retrying the object with backoff", name="maker")
    change("made", {"metadata": {"labels": {"wrong": None}}, **_secret("repaired")})
    things.await_success("maker")
    runs = [(run["reason"], run["outcome"]) for run in operator.runs("maker")]
    assert runs == [("created", "succeeded"), ("reference changed", "failed"), ("reference changed", "succeeded")]

    settings = {"metadata": {"name": "settings", "labels": {"for": "things"}}, "data": {"a": "1"}}
    api.call("POST", f"{core}/configmaps", settings)
    for name in ("one", "two", "maker"):
        operator.await_line("A reference changed", name=name, why=f"ConfigMap {namespace}/settings appeared")
    assert operator.stop() == 0
    for value in ("value-one", "value-two", "value-three"):
        assert value not in operator.log
        assert base64.b64encode(value.encode()).decode() not in operator.log
