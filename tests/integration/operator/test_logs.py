"""What runs say: found again by `ansible-operator logs`, and by `kubectl logs` in a pod that kwok plays."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.operator.pods import show_in_a_pod
from tests.kit.operator import PROGRAM
from tests.kit.processes import captured
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Things
    from tests.kit.operator import Project

OPENING = "--------------------------- Ansible Task StdOut -------------------------------"
_ROLE = """
- name: Before the gate
  ansible.builtin.debug: {msg: "size {{ size }} of {{ ansible_operator_meta.name }}"}
- name: Wait at the gate
  ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 120, sleep: 1}
  when: gate is defined
- name: After the gate
  ansible.builtin.debug: {msg: "{{ item }} of {{ ansible_operator_meta.name }}"}
  loop: [bread, milk]
"""


@pytest.fixture
def logs(project: Project) -> Callable[..., subprocess.Popen[str]]:
    """Start `ansible-operator logs` as a user on the operator's machine would."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [*PROGRAM, "logs", *arguments, f"--runner-dir={project.folder / 'runs'}"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def _whose(line: str) -> str:
    """The name of the object that a heading speaks of; empty where it is no heading."""
    fields = json.loads(line) if line.startswith("{") else {}
    if fields.get("msg") != "Task output":
        return ""
    assert fields["gvk"] == "test.example.com/v1, Kind=Thing"
    assert fields["job"]
    assert fields["namespace"]
    name: str = fields["name"]
    return name


def _blocks(log: str) -> list[tuple[str, str]]:
    """Each block of task output with the name in the line before it."""
    found: list[tuple[str, str]] = []
    for part in log.split(f"\n{OPENING}\n")[1:]:
        text, closing, _ = part.partition("\n" + "-" * len(OPENING) + "\n")
        assert closing, "a block has an end"
        found.append(("", text))
    headings = [part.rstrip("\n").rpartition("\n")[2] for part in log.split(f"\n{OPENING}\n")[:-1]]
    return [(_whose(heading), text) for heading, (_, text) in zip(headings, found, strict=True)]


def test_output_of_runs_is_found_with_the_logs_command(
    project: Project,
    things: Things,
    devcluster: DevCluster,
    logs: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    def said(*arguments: str) -> str:
        with logs(*arguments) as process:
            return process.communicate()[0]

    project.role("thing", _ROLE)
    project.watch("thing")
    operator = project.start()
    starting = operator.await_line("Starting")
    assert (starting["context"], starting["credentials"]) == ("c", str(project.kubeconfig))
    assert all(starting[name] for name in ("version", "ansible_core", "ansible_runner", "python", "server", "url"))
    assert starting["namespaces"] == [things.namespace]
    assert operator.await_line("Watching")["workers"] > 0

    for name, verbosity in (("one", "2"), ("two", "0")):
        things.create(name, {"size": 1}, annotations={"ansible.sdk.operatorframework.io/verbosity": verbosity})
    for name, is_verbose in (("one", True), ("two", False)):
        things.await_success(name)
        assert ("task path: " in said(f"thing/{name}")) is is_verbose
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")
    assert "size 2 of one" in said("thing/one", "-n", things.namespace)
    assert "size 1 of one" in said("things.test.example.com/one", "--previous")
    with logs("thing/nobody") as refused:
        assert "no run of thing 'nobody' is kept" in refused.communicate()[1]
    assert refused.returncode == 1
    things.delete("two")
    things.await_gone("two")
    wait_until(
        lambda: not list((project.folder / "runs").glob(f"*/v1/Thing/{things.namespace}/two")), "its folder to go"
    )
    with logs("thing/two") as deleted:
        output, about = deleted.communicate()
    assert "milk of two" in output
    assert "successful; the object was deleted at 2" in about

    gate = tmp_path / "gate"
    things.create("three", {"size": 3, "gate": str(gate)})
    wait_until(lambda: "TASK [thing : Wait at the gate]" in said("thing/three"), "the run to come to the gate")
    with logs("thing/three", "--follow") as following:
        assert following.stdout is not None
        while "size 3 of three" not in following.stdout.readline():
            assert following.poll() is None, "it ends when the run does"
        gate.touch()
        assert "milk of three" in following.stdout.read()
    assert following.returncode == 0

    things.await_success("three")
    assert operator.stop() == 0
    kubectl_logs = show_in_a_pod(devcluster, operator.log, things.namespace, tmp_path / "pod.log")
    wait_until(lambda: "Ansible Task StdOut" in kubectl_logs(), "kwok to know the log")
    shown = kubectl_logs()
    assert shown == operator.log
    blocks = _blocks(shown)
    assert {name for name, _ in blocks} == {"one", "two", "three"}
    for name, text in blocks:
        assert " of " not in text or f" of {name}" in text, "no block has what another run said"
    assert "Ansible Task Status Event StdOut (test.example.com/v1, Kind=Thing, three/" in shown


def test_short_names_are_those_of_the_cluster(kubeconfig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs/v1/ConfigMap/shop/settings"
    run = folder / "artifacts/20261121T110000.000001Z-aaaaaa"
    for each in (run, folder / "env"):
        each.mkdir(parents=True)
    (folder / "env/envvars").write_text("{}")
    (run / "stdout").write_text("ok: [localhost]\n")
    (run / "status").write_text("successful")
    command = [*PROGRAM, "logs", f"--runner-dir={tmp_path / 'runs'}"]

    def show(wanted: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        return captured(*command, wanted, env=environ)

    found = show("cm/settings")
    assert (found.returncode, found.stdout) == (0, "ok: [localhost]\n"), found.stderr
    missing = show("deploy/settings")
    assert missing.returncode == 1
    assert missing.stderr.strip().endswith("there are ConfigMap")
