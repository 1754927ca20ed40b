"""Events of an object in the output of `kubectl describe`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.cluster import kubectl_of
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

PAUSED = "ansible.sdk.operatorframework.io/paused"
OURS = "test.example.com/cleanup"
HOLD = "test.example.com/hold"

_ROLE = """
- name: "phase: Prepare"
  ansible.builtin.debug: {msg: preparing}
- name: "phase: Install"
  ansible.builtin.debug: {msg: installing}
- name: Deploy
  ansible.builtin.fail: {msg: "no such image: {{ image }}"}
  when: image == "bad"
- name: "phase: Never"
  ansible.builtin.debug: {msg: never}
  when: false
"""

_STORY = [
    ("Normal", "RunStarted", "Run started, created"),
    ("Normal", "PhaseStarted", "Phase Prepare started"),
    ("Normal", "PhaseEnded", "Phase Prepare ended"),
    ("Normal", "PhaseStarted", "Phase Install started"),
    ("Warning", "PhaseEnded", "Phase Install was cut short"),
    ("Warning", "RunFailed", "no such image: bad (task 'Deploy', "),
    ("Warning", "GivenUp", "1 run failed in a row"),
    ("Normal", "RunStarted", "Run started, changed: spec.image"),
    ("Normal", "PhaseEnded", "Phase Install ended"),
    ("Normal", "RunSucceeded", " s: 2 ok, 0 changed, 2 skipped"),
    ("Normal", "Paused", f"Not run while the annotation {PAUSED} is true"),
    ("Normal", "FinalizerStarted", "Finalizer started, deleted"),
    ("Normal", "FinalizerSucceeded", "Finalizer succeeded after "),
]


@pytest.fixture
def described(devcluster: DevCluster, things: Things) -> Callable[[str], list[str]]:
    def describe(name: str) -> list[str]:
        output = kubectl_of(devcluster, f"--namespace={things.namespace}")("describe", f"thing/{name}")
        return output.partition("\nEvents:\n")[2].splitlines()

    return describe


def _allow_events_of(api: Api, project: Project, groups: list[str]) -> None:
    """Grant only events of these groups, and wait until the authorizer applies it."""
    rules = project.rules
    for rule in rules:
        if "events" in rule["resources"]:
            rule["apiGroups"] = groups
    project.rules = rules

    def is_known(group: str) -> bool:
        asked = {"group": group, "resource": "events", "verb": "create", "namespace": project.namespace}
        user = f"system:serviceaccount:{project.namespace}:operator"
        return api.allows(user, {"resourceAttributes": asked}) == (group in groups)

    wait_until(lambda: is_known("") and is_known("events.k8s.io"), "the authorizer to know")


def test_describe_shows_the_events_of_an_object(
    project: Project, things: Things, api: Api, described: Callable[[str], list[str]]
) -> None:
    project.role("thing", _ROLE)
    project.watch("thing", retry={"attempts": 1}, finalizer={"name": OURS, "vars": {"state": "absent"}})
    operator = project.start()
    operator.await_line("Watching")
    things.create("one", {"image": "bad"}, finalizers=[HOLD])
    things.await_condition("one", "Failure")
    things.merge("one", {"spec": {"image": "good"}})
    things.await_success("one")
    things.merge("one", {"metadata": {"annotations": {PAUSED: "true"}}, "spec": {"image": "better"}})
    things.await_condition("one", "Running", "False")
    things.merge("one", {"metadata": {"annotations": {PAUSED: None}}})
    things.await_success("one")
    things.delete("one")

    def whole_story() -> list[str]:
        found = described("one")
        return found if any("FinalizerSucceeded" in line for line in found) else []

    told = wait_until(whole_story, "the end of the story")
    rest = iter(told)
    for kind, reason, note in _STORY:
        pattern = rf"\s+{kind}\s+{reason}\s+.*ansible-operator\s+.*{re.escape(note)}"
        assert any(re.match(pattern, line) for line in rest), f"{reason} {note!r} is missing in\n" + "\n".join(told)
    assert not any("Never" in line for line in told), told
    again = [line for line in told if "Phase Prepare started" in line]
    assert len(again) == 1, "what happens again is counted"
    assert re.search(r"\(x\d over ", again[0]), again
    things.merge("one", {"metadata": {"finalizers": None}})

    _allow_events_of(api, project, [""])
    things.create("two", {"image": "good"})

    def of_core() -> list[dict[str, Any]]:
        found = api.call("GET", f"/api/v1/namespaces/{things.namespace}/events")["items"]
        return [each for each in found if each["involvedObject"]["name"] == "two"]

    wait_until(lambda: "RunSucceeded" in {each["reason"] for each in of_core()}, "events of the core group")
    assert {each["source"]["component"] for each in of_core()} == {"ansible-operator"}

    _allow_events_of(api, project, ["nothing.example.com"])
    things.create("three", {"image": "good"})
    things.await_success("three")
    warned = operator.await_line("Cannot write Events; the log contains the same information")
    assert "verbs: [create, patch]" in warned["rule"]
