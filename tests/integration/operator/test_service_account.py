"""Runs as a narrower service account, judged by the API server's own authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.kit.rights import granted
from tests.kit.tasks import config_map
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

LOOK = """
- name: Look at what is secret
  kubernetes.core.k8s:
    {api_version: v1, kind: Secret, name: none, namespace: "{{ ansible_operator_meta.namespace }}", state: absent}
  when: peek is defined
  ignore_errors: "{{ peek | default('') == 'in vain' }}"
"""


def allow(api: Api, namespace: str, account: str, *rules: dict[str, Any]) -> None:
    """Give an account rights in the namespace, on top of what it has."""
    name = f"{account}-{'-'.join(rules[0]['resources'])}"
    api.grant(*granted(name, rules, namespace=namespace, account=(namespace, account)))


@pytest.fixture
def narrow(project: Project, api: Api) -> dict[str, Any]:
    """A project whose runs are a narrow account's, and the rule that lets the operator act as it."""
    space = project.namespace
    api.call("POST", f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "narrow"}})
    allow(api, space, "narrow", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]})
    allow(api, space, "operator", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "delete"]})
    project.role("thing", config_map(namespace="{{ where | default(ansible_operator_meta.namespace) }}") + LOOK)
    project.watch("thing", serviceAccount="narrow", finalizer={"name": "test.example.com/end", "vars": {"peek": "now"}})
    acting = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}
    return {**acting, "resourceNames": ["narrow"]}


def secrets_of(space: str) -> str:
    return (
        f"forbidden: get secrets in namespace {space} (as system:serviceaccount:{space}:narrow); add to its Role: "
        '{apiGroups: [""], resources: [secrets], verbs: [get]}'
    )


def advice_in(message: str) -> str:
    """The line of a failure that says which right is missing."""
    (line,) = (each for each in message.splitlines() if each.startswith("forbidden: "))
    return line


@pytest.mark.full
def test_runs_of_a_watch_with_a_service_account_have_its_rights_alone_and_a_missing_account_is_named(
    project: Project, things: Things, api: Api, narrow: dict[str, Any]
) -> None:
    space = project.namespace
    allow(api, space, "operator", {**narrow, "verbs": ["get", "impersonate"]})
    account = f"/api/v1/namespaces/{space}/serviceaccounts/narrow"
    api.call("DELETE", account)
    operator = project.start(ready=False)
    assert operator.process.wait(patience()) != 0
    assert f"serviceAccount: narrow: no such service account: {space}/narrow. Create it" in operator.log

    api.call("POST", account.rpartition("/")[0], {"metadata": {"name": "narrow"}})
    operator = project.start()
    things.create("one", {})
    things.create("rescued", {"peek": "in vain"})
    things.create("elsewhere", {"where": "default"})
    things.await_success("one")
    made = api.call("GET", f"/api/v1/namespaces/{space}/configmaps/one")
    assert [owner["name"] for owner in made["metadata"]["ownerReferences"]] == ["one"]
    things.await_condition("elsewhere", "Failure")
    conditions = things.conditions("elsewhere")
    for each in ("Failure", "Ready"):
        assert conditions[each]["message"].startswith("forbidden: get configmaps in namespace default (as "), each
    things.await_success("rescued")
    said = operator.await_line("A run succeeded without a right that it requested; add the rule", name="rescued")
    assert said["problem"] == secrets_of(space)

    api.call("DELETE", account)
    things.create("two", {"where": "default"})
    cause = "; this service account does not exist: create it, and add to its Role: "
    things.await_condition("two", "Failure", saying=cause)


@pytest.mark.nightly
def test_a_finalizer_uses_the_service_account_and_failures_name_missing_rights_of_both_accounts(
    project: Project, things: Things, api: Api, narrow: dict[str, Any]
) -> None:
    space = project.namespace
    operator = project.start()
    things.create("one", {})
    message = things.await_condition("one", "Failure")["message"]
    said, _, rule = advice_in(message).partition("; add to its Role: ")
    assert said.startswith(f"forbidden: impersonate serviceaccounts narrow in namespace {space} (as ")
    assert yaml.safe_load(rule) == narrow
    allow(api, space, "operator", yaml.safe_load(rule))
    things.await_success("one")

    things.delete("one")
    secrets = secrets_of(space)
    wait_until(lambda: secrets in things.conditions("one")["Failure"]["message"], "the finalizer to be as narrow")
    assert operator.lines(msg="A run lacks a right; add the rule", name="one", error=secrets)
    allow(api, space, "narrow", yaml.safe_load(secrets.partition("Role: ")[2]))
    things.await_gone("one")
    assert operator.stop() == 0

    del project.watches[0]["serviceAccount"]
    project.start()
    things.create("two", {"peek": "now"})
    things.await_success("two")
