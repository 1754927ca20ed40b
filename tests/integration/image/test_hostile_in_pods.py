"""The suite of hostile resources with runs in pods, and roles that attack the agent of their own pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.image.pods import PodProject, ProjectInPods
from tests.integration.operator.test_hostile import (
    _memory,
    other,
    test_hostile_resources_harm_neither_the_operator_nor_their_neighbours,
)
from tests.integration.operator.test_tenant_input import (
    test_text_of_a_resource_is_neither_an_event_nor_a_line_of_the_operator,
)
from tests.kit.images import needs_images_on_a_node
from tests.kit.objects import Api, Things
from tests.kit.wait import wait_until

__all__ = [
    "other",
    "test_hostile_resources_harm_neither_the_operator_nor_their_neighbours",
    "test_text_of_a_resource_is_neither_an_event_nor_a_line_of_the_operator",
]
pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]

_GROWTH = 300.0
"""MiB that the operator may need for the longest line that an agent accepts, 64 MiB."""


@pytest.fixture(params=[pytest.param(number, marks=pytest.mark.nightly) for number in (4, 60)])
def count(request: pytest.FixtureRequest) -> int:
    """Number of hostile resources. Each special name is in one of them, however few they are."""
    number: int = request.param
    return number


@pytest.fixture
def project(pods: PodProject) -> ProjectInPods:
    """A project whose pods can write to the folder in which no file may appear."""
    canary = pods.project.folder / "canary"
    canary.mkdir()
    canary.chmod(0o777)  # the image has another user
    pods.project.template |= {
        "volumes": [{"name": "canary", "hostPath": {"path": str(canary), "type": "Directory"}}],
        "volumeMounts": [{"name": "canary", "mountPath": str(canary)}],
    }
    return pods.project


@pytest.fixture
def things(pods: PodProject) -> Things:
    return pods.things


@pytest.fixture
def namespace(pods: PodProject) -> str:
    return pods.namespace


@pytest.fixture
def api(pods: PodProject) -> Api:
    """The API server of the node, which serves Memcached too."""
    pods.install_sample()
    return pods.api


def test_a_role_that_attacks_the_agent_of_its_pod_fails_with_one_outcome_and_harms_no_neighbour(
    pods: PodProject,
) -> None:
    pods.watch(
        """
- name: Attack
  ansible.builtin.command: {argv: [python3, "{{ role_path }}/files/hostile.py", "{{ attack }}"]}
  changed_when: false
  when: attack is defined
- name: Wait for the end
  ansible.builtin.command: sleep 30
  changed_when: false
  when: attack is defined
""",
        retry={"attempts": 1},
    )
    pods.project.write("roles/thing/files/hostile.py", Path(__file__).with_name("hostile.py").read_text())
    operator = pods.start()
    pods.things.create("before")
    pods.succeeds("before")
    before = _memory(operator)
    expected: dict[str, str] = {
        "words": "sent invalid data (a line is not JSON",
        "type": "sent invalid data (an event with a missing value, or one of another type",
        "endless": "ansible-runner wrote a line of more than 67108864 bytes",
        "stop": "ansible-runner ended with exit code",
    }
    for attack in expected:
        pods.things.create(attack, {"attack": attack})
    pods.things.create("neighbour")
    pods.succeeds("neighbour")
    messages = {attack: pods.things.await_condition(attack, "Failure")["message"] for attack in expected}
    assert {attack: part for attack, part in expected.items() if part not in messages[attack]} == {}
    for attack in expected:
        assert len(operator.runs(attack)) == 1
    assert operator.lines(level="error", msg="Reconcile failed unexpectedly") == []
    assert _memory(operator) < before + _GROWTH
    wait_until(lambda: not pods.objects("secrets"), "the records of the runs to go")
    pods.things.create("after")
    pods.succeeds("after")
