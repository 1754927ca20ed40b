"""Isolation of runs in pods: hostile roles that look around or attack their agent, and neighbours of runs that fail."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.image.pods import ROLE, PodProject
from tests.integration.operator.test_hostile import _memory
from tests.integration.operator.test_service_account import allow
from tests.kit.images import needs_images_on_a_node
from tests.kit.tasks import NAME, config_map
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]

PROBES = """
- name: Look around
  ansible.builtin.command: {argv: [python3, "{{ role_path }}/files/probe.py", "{{ attack | to_json }}"]}
  register: probe
  changed_when: false
"""
RECORD = config_map(f"{NAME}-found", {"found": "{{ probe.stdout | b64encode }}"}, task_name="Record")
CANARY = "canary-of-the-victim"
GROWTH = 300.0
"""MiB that the operator may need for the longest line that an agent accepts, 64 MiB."""
NOT_HERE, TAKEN = "the run is not here", "another agent has this run"


def _waits_at_gate(pods: PodProject, uid: str) -> None:
    def asked() -> bool:
        of_object = [each for each in pods.objects("pods") if uid in each["metadata"]["name"]]
        return any("FAILED - RETRYING" in pods.log(each["metadata"]["name"]) for each in of_object)

    wait_until(asked, "the role to wait for its gate")


def test_a_role_reaches_nothing_of_the_operator_and_of_other_runs(pods: PodProject) -> None:
    space, victims = pods.namespace, pods.other_kind()
    for account, resources in (("narrow", ["configmaps"]), ("wide", ["configmaps", "secrets"])):
        pods.api.call("POST", f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": account}})
        rule = {"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "create", "patch"]}
        allow(pods.api, space, account, rule)
        acting = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}
        allow(pods.api, space, "operator", acting)
    pods.watch(PROBES + RECORD, serviceAccount="narrow")
    pods.project.write("roles/thing/files/probe.py", Path(__file__).with_name("probe.py").read_text())
    pods.project.role("victim", ROLE)
    pods.project.watch("victim", kind=victims.kind, serviceAccount="wide")
    operator = pods.start()
    uid = victims.create("victim", {"gate": "open", "canary": CANARY})["metadata"]["uid"]
    _waits_at_gate(pods, uid)
    (record,) = pods.objects("secrets")
    stolen = base64.b64decode(record["data"]["token"]).decode()
    account = yaml.safe_load(pods.project.kubeconfig.read_text())["users"][0]["user"]["token"]
    ports = [line["port"] for line in operator.lines(msg="Serving")]
    attack = {
        "namespace": space,
        "victim": record["metadata"]["name"],
        "stolen": stolen,
        "absent": [text[::-1] for text in (CANARY, account, str(pods.project.folder))],
        "ports": ports,
    }

    def found(name: str) -> Any:
        pods.things.create(name, {"attack": attack})
        pods.succeeds(name)
        return json.loads(base64.b64decode(pods.config_map(f"{name}-found")["data"]["found"]))

    expected = {
        "files": [],
        "foreign commands": [],
        "own commands": True,
        "ports": {str(port): "ConnectionRefusedError" for port in ports},
        "port of agents": "open",
        "API server without identity": 403,
        "proxy with own token": 200,
        "proxy without token": 401,
        "proxy with another word": 401,
        "proxy, Secret of another run": 403,
        "proxy, as an administrator": 403,
        "proxy with the stolen token": 200,
        "proxy with the stolen token, Secret": 403,
        "order of another run": NOT_HERE,
        "order with the stolen token": TAKEN,
        "own order, again": TAKEN,
    }
    assert len(ports) > 1
    assert found("early") == expected
    pods.open_gate("open")
    victims.await_success("victim")
    assert found("late") == {
        **expected,
        "proxy with the stolen token": 401,
        "proxy with the stolen token, Secret": 401,
        "order with the stolen token": NOT_HERE,
    }
    assert [run["outcome"] for run in operator.runs("victim")] == ["succeeded"]
    assert operator.process.poll() is None


@pytest.mark.nightly
def test_a_role_in_a_warm_pod_obtains_no_second_run(pods: PodProject) -> None:
    code = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1]); import probe; "
        "own = probe.agent.Contact.read(probe.SECRET); "
        "print(own.run.startswith('warm-thing-'), asyncio.run(probe.hello(own.run, own.token)))"
    )
    pods.watch(
        PROBES.replace(
            'argv: [python3, "{{ role_path }}/files/probe.py", "{{ attack | to_json }}"]',
            f'argv: [python3, -c, "{code}", "{{{{ role_path }}}}/files"]',
        )
        + RECORD,
        warmPods=2,
    )
    pods.project.write("roles/thing/files/probe.py", Path(__file__).with_name("probe.py").read_text())
    operator = pods.start()
    wait_until(lambda: len(operator.lines(msg="A warm pod is ready")) == 2, "two warm pods")
    pods.things.create("thief")
    pods.succeeds("thief")
    found = base64.b64decode(pods.config_map("thief-found")["data"]["found"]).decode()
    assert found == "True another agent has this pod"
    assert [run["outcome"] for run in operator.runs("thief")] == ["succeeded"]


@pytest.mark.parametrize("imageless", [False, pytest.param(True, marks=pytest.mark.nightly)])  # it waits for the image
def test_neighbours_of_runs_that_fail_continue(pods: PodProject, *, imageless: bool) -> None:
    others = pods.other_kind()
    once: dict[str, Any] = {"retry": {"attempts": 1}}
    pods.watch(template={"resources": {"limits": {"memory": "200Mi"}}}, runTimeout="5m", **once)
    pods.project.watch("thing", kind=others.kind, podTemplate={"image": "example.com/none:1"}, **once)
    operator = pods.start()
    failing = [
        (pods.things, "hungry", "reached its memory limit (200 MiB)"),
        (pods.things, "late", "took longer than 8s"),
    ]
    if imageless:
        others.create("imageless")
        failing.append((others, "imageless", "its image example.com/none:1 cannot be pulled"))
    steady = pods.things.create("steady", {"gate": "open"})["metadata"]["uid"]
    _waits_at_gate(pods, steady)
    pods.things.create("hungry", {"mebibytes": 400})
    pods.things.create("late", {"gate": "never"}, annotations={"ansible.sdk.operatorframework.io/run-timeout": "8s"})
    for things, name, expected in failing:
        assert expected in things.await_condition(name, "Failure")["message"]
        assert [run["outcome"] for run in operator.runs(name)] != ["succeeded"]
    assert operator.runs("steady") == []
    pods.open_gate("open")
    pods.succeeds("steady")
    assert [run["outcome"] for run in operator.runs("steady")] == ["succeeded"]
    assert len([job for job in pods.objects("jobs") if steady in job["metadata"]["name"]]) == 1
    pods.things.create("next")
    pods.succeeds("next")


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
    assert _memory(operator) < before + GROWTH
    wait_until(lambda: not pods.objects("secrets"), "the records of the runs to go")
    pods.things.create("after")
    pods.succeeds("after")
