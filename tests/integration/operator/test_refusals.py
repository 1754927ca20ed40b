"""What follows if the API server refuses the operator's own requests about an object, with real policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.operator.conftest import GROUP

if TYPE_CHECKING:
    from tests.integration.operator.conftest import Api, Eventually, Operator, Project, Things

FINALIZER = f"{GROUP}/finalizer"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_HAS = f"has({{0}}.metadata.finalizers) && '{FINALIZER}' in {{0}}.metadata.finalizers"
KEEP = f"!({_HAS.format('oldObject')}) || ({_HAS.format('object')})"
"""The finalizer is not removed."""
ADD_NONE = f"!({_HAS.format('object')})"
"""The finalizer is not there."""
MESSAGE = "the policy of the test refuses this"
REFUSED = "The API server refuses a request about the object; retrying with backoff"


class Policy:
    """A ValidatingAdmissionPolicy for updates of the things of one namespace."""

    def __init__(self, things: Things, api: Api, eventually: Eventually) -> None:
        self._api = api
        self._things = things
        self._eventually = eventually
        self._name = f"refuse-{things.namespace}"

    def refuse(self, expression: str, reason: str, probe: tuple[str, Any], subresource: str = "") -> None:
        """Refuse updates for which the expression is false, with the reason `Invalid` (422) or `Forbidden` (403).

        Return when the API server does so. `probe` is an object, and a merge patch of it that is refused then.
        """
        resource = "things" + (f"/{subresource}" if subresource else "")
        rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource]}
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": self._name}}
        policy = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "reason": reason, "message": MESSAGE}],
        }
        binding = {
            "policyName": self._name,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._things.namespace}}
            },
        }
        for plural, kind, spec in (
            ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", policy),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", binding),
        ):
            self._api.apply(f"{_ADMISSION}/{plural}/{self._name}", {**body, "kind": kind, "spec": spec})
        name, patch = probe
        path = f"{self._things.path}/{name}" + (f"/{subresource}" if subresource else "")
        self._eventually(lambda: MESSAGE in self._api.refusal(path, patch), "the policy to count")

    def remove(self) -> None:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            self._api.call("DELETE", f"{_ADMISSION}/{plural}/{self._name}")


@pytest.fixture
def policy(things: Things, api: Api, eventually: Eventually) -> Iterator[Policy]:
    policy = Policy(things, api, eventually)
    yield policy
    policy.remove()


def _project(project: Project) -> Operator:
    project.role("thing", "- ansible.builtin.debug: {msg: hello}\n")
    project.role("cleanup", "- ansible.builtin.debug: {msg: goodbye}\n")
    project.watch("thing", finalizer={"name": FINALIZER, "role": "cleanup"})
    return project.start()


def _events(api: Api, things: Things, name: str) -> list[dict[str, Any]]:
    found = api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{things.namespace}/events")["items"]
    return [each for each in found if (each["reason"], each["regarding"]["name"]) == ("RequestRefused", name)]


def _finalizer_runs(operator: Operator, name: str) -> int:
    return len([run for run in operator.runs(name) if run["reason"] in {"deleted", "retry"}])


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_a_policy_that_keeps_finalizers_stops_neither_other_objects_nor_runs_a_finalizer_twice(
    project: Project, things: Things, api: Api, eventually: Eventually, policy: Policy, reason: str
) -> None:
    operator = _project(project)
    names = [f"thing-{number}" for number in range(4)]
    for name in names:
        things.create(name, {})
    for name in names:
        things.await_success(name)
    policy.refuse(KEEP, reason, (names[0], {"metadata": {"finalizers": None}}))
    for name in names:
        things.delete(name)
    for name in names:
        assert MESSAGE in things.await_condition(name, "RequestRefused")["message"]
    things.create("neighbour", {})
    things.await_success("neighbour")
    for name in names:
        operator.await_line(REFUSED, name=name)
        eventually(lambda name=name: _events(api, things, name), f"the Event about {name}")  # type: ignore[misc]
    policy.remove()
    for name in names:
        things.merge(name, {"metadata": {"annotations": {"the": "policy is gone"}}})
    for name in names:
        things.await_gone(name)
        assert _finalizer_runs(operator, name) == 1
        assert len(operator.lines(msg=REFUSED, name=name)) == 1
        assert len(_events(api, things, name)) == 1


def test_a_policy_that_refuses_the_finalizer_is_reported_on_the_object_and_retried_with_backoff(
    project: Project, things: Things, api: Api, eventually: Eventually, policy: Policy
) -> None:
    things.create("probe", {})
    policy.refuse(ADD_NONE, "Invalid", ("probe", {"metadata": {"finalizers": [FINALIZER]}}))
    things.delete("probe")
    operator = _project(project)
    things.create("one", {})
    assert MESSAGE in things.await_condition("one", "RequestRefused")["message"]
    eventually(lambda: _events(api, things, "one"), "the Event")
    eventually(lambda: len(_retries(operator)) > 3, "some retries")
    retries = _retries(operator)
    assert retries == sorted(retries)
    assert retries[3] >= 8 * retries[0]
    assert operator.runs("one") == []
    assert operator.lines(msg="Conflict with another writer; retrying") == []
    policy.remove()
    things.merge("one", {"metadata": {"annotations": {"the": "policy is gone"}}})
    things.await_success("one")
    assert things.conditions("one")["RequestRefused"]["status"] == "False"
    assert len(operator.lines(msg=REFUSED, name="one")) == 1


def _retries(operator: Operator) -> list[float]:
    return [line["seconds"] for line in operator.lines(msg="Retrying the object with backoff", name="one")]


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_a_status_that_a_policy_refused_is_written_soon_after_the_policy_is_gone(
    project: Project, things: Things, api: Api, eventually: Eventually, policy: Policy, reason: str
) -> None:
    things.create("probe", {})
    policy.refuse("false", reason, ("probe", {"status": {"any": 1}}), "status")
    things.delete("probe")
    operator = _project(project)
    things.create("one", {})
    operator.await_line("Run ended", name="one")
    eventually(lambda: _events(api, things, "one"), "the Event")
    assert not things.conditions("one")
    policy.remove()
    things.await_success("one")
    assert len(operator.runs("one")) == 1
