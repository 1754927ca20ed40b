"""A node that is lost during a run in a pod: the run is repeated, and nothing that still runs on the node can write."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from runner.sdk.devcluster import DevCluster, node
from runner.sdk.devcluster.layout import KUBELET
from tests.faults.on_node import first_process
from tests.integration.image.pods import PodProject
from tests.kit.images import needs_images_on_a_node
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("pods"),
    pytest.mark.timeout(1200),
    needs_images_on_a_node(),
]

ROLE = """
- name: Write until the gate is open
  ansible.builtin.command: {argv: [python3, "{{ role_path }}/files/writer.py", "{{ space }}", open]}
  changed_when: false
  vars: {space: "{{ ansible_operator_meta.namespace }}"}
"""
_PATIENCE = 240.0
"""Seconds for the control plane to report the node, and for the operator to repeat the run."""


def test_a_run_on_a_lost_node_is_repeated_and_its_processes_can_write_nothing(
    pods: PodProject, ee_cluster: DevCluster
) -> None:
    pods.watch(ROLE)
    pods.project.write("roles/thing/files/writer.py", Path(__file__).with_name("writer.py").read_text())
    operator = pods.start()

    def written(by: str) -> set[str]:
        path = f"/api/v1/namespaces/{pods.namespace}/configmaps?labelSelector=by%3D{by}"
        return {each["metadata"]["name"] for each in pods.api.call("GET", path)["items"]}

    def is_ready() -> bool:
        found = pods.api.call("GET", f"/api/v1/nodes/{node.NODE}")["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in found)

    uid = pods.things.create("one")["metadata"]["uid"]
    wait_until(lambda: pods.objects("pods"), "the pod")
    (lost,) = (each["metadata"]["name"] for each in pods.objects("pods"))
    wait_until(lambda: written(lost), "the role to write")
    agent = first_process(f"HOSTNAME={lost}")
    assert agent is not None
    ee_cluster.pause(KUBELET)
    # The node answers nothing any more, but the process of the role goes on.
    os.kill(agent, signal.SIGSTOP)
    try:
        before = len(written(lost))
        wait_until(lambda: len(written(lost)) > before + 2, "the role to write while the operator waits for the node")
        wait_until(lambda: operator.runs("one"), "the run to be given up", _PATIENCE)
        last = written(lost)
        assert first_process(f"HOSTNAME={lost}") == agent
    finally:
        ee_cluster.resume(KUBELET)
    wait_until(is_ready, "the node to return")
    wait_until(
        lambda: [each for each in pods.objects("jobs") if f"{uid}-2" in each["metadata"]["name"]], "the repetition"
    )
    os.kill(agent, signal.SIGCONT)
    pods.open_gate("open")
    pods.succeeds("one")
    assert [run["outcome"] for run in operator.runs("one")] == ["canceled", "succeeded"]
    assert "its node node-real" in operator.runs("one")[0]["error"]
    wait_until(lambda: first_process(f"HOSTNAME={lost}") is None, "the lost pod to end")
    assert written(lost) == last
