"""The molecule scenario without containers, run as a developer runs it: it passes, and finds what is broken."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.integration.scaffold.developer import STEPS, Project, copy_sample, of_a_developer, running
from tests.kit import workloads
from tests.kit.images import hindrance, node_hindrance
from tests.kit.places import BIN, ROOT
from tests.kit.processes import captured
from tests.kit.shell import generate
from tests.kit.tasks import config_map
from tests.kit.wait import patience

TASKS = "roles/basket/tasks/main.yml"
MISTYPED = """\
---
- name: Write the flavour
  ansible.builtin.debug:
    msg: "{{ flavor }}"
"""

NOTED = """\
#!/bin/sh
echo "$(basename "$0") $*" >>"$0".said
"""
KIND = (
    NOTED
    + """\
if [ "$1 $2" = "create cluster" ]; then cp {cluster} "$KUBECONFIG"; fi
"""
)
"""What cannot run without containers: an image is built and loaded nowhere, and the cluster that is made is there."""


def write(project: Project, tasks: str) -> None:
    (project.folder / TASKS).write_text(tasks, encoding="utf-8")


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Project]:
    """This repository's own project."""
    with of_a_developer(copy_sample(tmp_path)) as project:
        yield project


@pytest.fixture
def generated(tmp_path: Path) -> Iterator[Project]:
    """A project from an empty folder."""
    folder = generate(
        tmp_path / "shop-operator", "init --domain example.org", "create api --group shop --kind Basket --finalizer"
    )
    with of_a_developer(folder) as project:
        yield project


LOAD = """
    - name: Load the image of its pods
      ansible.builtin.command:
        argv:
          - ansible-operator
          - cluster
          - load
          - {archive}
          - --tag=docker.io/library/memcached:1.6-alpine
          - --name={{{{ cluster_name }}}}
      changed_when: true
"""
SERVED = """
- name: See that its servers are ready
  kubernetes.core.k8s_info:
    api_version: apps/v1
    kind: Deployment
    name: memcached-sample-memcached
    namespace: "{{ test_namespace }}"
    wait: true
    wait_sleep: 1
    wait_condition:
      type: Available
      status: "True"

- name: See that all of them are on the real node
  ansible.builtin.assert:
    that: pods | map(attribute='spec.nodeName') | unique == ['node-real']
  vars:
    pods: >-
      {{ query('kubernetes.core.k8s', api_version='v1', kind='Pod', namespace=test_namespace,
      label_selector='app.kubernetes.io/instance=memcached-sample') }}
"""


@pytest.mark.nightly
@pytest.mark.xdist_group("molecule")
@pytest.mark.skipif(bool(why := hindrance() or node_hindrance()), reason=why)
def test_the_scenario_of_the_sample_passes_with_pods_that_run(sample: Project) -> None:
    sample.environ["DEVCLUSTER_NODE"] = "real"
    archive = workloads.archives(sys.stderr, "memcached")["memcached"]
    for file, text in (("prepare.yml", LOAD.format(archive=archive)), ("tasks/memcached_test.yml", SERVED)):
        path = sample.folder / "molecule/default" / file
        path.write_text(path.read_text() + text)
    assert sample.molecule("test") == dict.fromkeys(STEPS, True)


def _true(kind: str, message: str = "", **more: object) -> dict[str, object]:
    return {"type": kind, "status": "True", "message": message, "observedGeneration": 2, **more}


_FINAL = "no\nThe operator does not run it again until the object changes."
_REFERENCES = "no\nThe operator does not run it again until the object, or an object that it references, changes."
_NO_RUN = "no run has ended in 120 s; see the log of the operator"
_BEGAN = "2026-11-29T12:00:00Z"


def _after(runs: int, message: str, at: str = "2026-11-29T12:00:05Z") -> list[dict[str, object]]:
    """Return the conditions after failed runs in a row."""
    return [
        _true("Failure", message),
        {"type": "Running", "status": "False", "message": f"{runs} runs failed", "lastTransitionTime": at},
    ]


_SHOWN = {"subject": {"cause": "no", "runs": 1}}
_SAMPLES: dict[str, tuple[list[dict[str, object]], dict[str, object], tuple[bool, bool, str]]] = {
    "no status": ([], {}, (False, False, _NO_RUN)),
    "no status for too long": ([], {"began_at": 0}, (False, True, _NO_RUN)),
    "success": ([_true("Successful")], {}, (True, False, _NO_RUN)),
    "success of an earlier generation": ([_true("Successful", observedGeneration=1)], {}, (False, False, _NO_RUN)),
    "stalled": ([_true("Stalled", "short"), *_after(1, _FINAL)], {}, (False, True, _FINAL)),
    "stalled without health conditions": (_after(1, _FINAL), {}, (False, True, _FINAL)),
    "stalled before": (_after(1, _FINAL, "2026-11-29T11:59:59Z"), {}, (False, False, _FINAL)),
    "stalled until a reference changes": (
        [_true("Stalled", "short"), *_after(1, _REFERENCES)],
        {},
        (False, False, _REFERENCES),
    ),
    "retried": ([_true("Failure", "m" * 2000), _true("Reconciling", "short")], {}, (False, False, "short")),
    "second failure": (_after(2, "no"), {"seen": _SHOWN}, (False, False, "no")),
    "third failure": (_after(3, "no"), {"seen": _SHOWN}, (False, True, "no")),
    "third failure, with another message": (_after(3, "why"), {"seen": _SHOWN}, (False, False, "why")),
    "third failure before": (_after(3, "no", "2026-11-29T11:59:59Z"), {"seen": _SHOWN}, (False, False, "no")),
    "no run yet after failures": ([_true("Failure", "no")], {"seen": _SHOWN}, (False, False, "no")),
}
"""Conditions of samples; what converge remembers; whether they succeeded, whether it gives up, and why."""


def test_converge_detects_by_conditions_which_samples_cannot_succeed(tmp_path: Path) -> None:
    (converge,) = yaml.safe_load((ROOT / "molecule/default/converge.yml").read_text())
    tasks = [
        {
            "name": name,
            "ansible.builtin.assert": {
                "that": [
                    "('Successful' in states) == wanted[0]",
                    "(is_hopeless | bool) == wanted[1]",
                    "cause == wanted[2]",
                ],
            },
            "vars": {
                "found": {"metadata": {"generation": 2}, "status": {"conditions": given}},
                "seen": {},
                **more,
                "wanted": wanted,
            },
        }
        for name, (given, more, wanted) in _SAMPLES.items()
    ]
    noted = {"began": _BEGAN, "began_at": "{{ now(utc=true).timestamp() }}", "subject": "subject", "patience": 120}
    play = {"hosts": "localhost", "gather_facts": False, "vars": {**converge["vars"], **noted}, "tasks": tasks}
    (tmp_path / "play.json").write_text(json.dumps([play]))
    command = [
        str(BIN / "ansible-playbook"),
        "--connection=local",
        "--inventory=localhost,",
        str(tmp_path / "play.json"),
    ]
    done = captured(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok={len(_SAMPLES)} " in done.stdout


@pytest.mark.nightly
@pytest.mark.xdist_group("molecule")
def test_converge_ends_after_three_failures_with_the_same_message_and_runs_a_repaired_role_at_once(
    generated: Project,
) -> None:
    write(generated, MISTYPED)
    finished = generated.sh("molecule", "converge")
    assert finished.returncode
    cause = "Basket shop-operator-test/basket-sample: 'flavor' is undefined"
    waits, _, end = finished.stdout.rpartition("TASK [Check that a run of each sample succeeded]")
    assert cause in waits, "the cause is shown before the end"
    assert end.count(cause) == 1, finished.stdout
    assert finished.stdout.count("FAILED - RETRYING") < 30, "the patience is 120 s"
    write(generated, "---\n[]\n")
    assert generated.molecule("converge")["converge"]


@pytest.mark.nightly
@pytest.mark.xdist_group("molecule")
def test_the_scenario_detects_a_role_that_is_not_idempotent_and_one_that_fails(generated: Project) -> None:
    write(generated, config_map(data={"content": "{{ lookup('ansible.builtin.pipe', 'date +%s%N') }}"}))
    settings = generated.folder / "molecule/default/molecule.yml"
    settings.write_text(settings.read_text().replace("patience: 120", "patience: 40"))
    generated.molecule("converge")
    finished = generated.sh("molecule", "idempotence")
    assert finished.returncode
    assert "Fail if every run changes something" in finished.stdout.rpartition("Idempotence test failed")[2]

    write(generated, "---\n- name: Fail\n  ansible.builtin.fail:\n    msg: broken on purpose\n")
    status = generated.sh("ansible-operator", "cluster", "status").stdout
    kubectl = status.partition("molecule-shop-operator: running")[2].partition("kubectl")[2].split()[0]
    kubeconfig = f"--kubeconfig={generated.environ['MOLECULE_EPHEMERAL_DIRECTORY']}/kubeconfig"
    basket = ("basket.shop.example.org/basket-sample", "--namespace=shop-operator-test")
    waited = generated.sh(
        kubectl, kubeconfig, "wait", "--for=condition=Failure", f"--timeout={patience():.0f}s", *basket
    )
    assert waited.returncode == 0, waited.stdout
    finished = generated.sh("molecule", "verify")
    assert finished.returncode
    assert "Check that the last run succeeded" in finished.stdout


@pytest.mark.nightly
@pytest.mark.xdist_group("molecule")
def test_the_scenario_with_containers_passes_but_for_docker_and_kind(generated: Project, tmp_path: Path) -> None:
    with clusters.start(name="kind") as cluster:
        programs = tmp_path / "programs"
        programs.mkdir()
        for name, text in (("docker", NOTED), ("kind", KIND.format(cluster=cluster.kubeconfig))):
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
        generated.environ["PATH"] = os.pathsep.join(
            [str(programs), str(cluster.kubectl.parent), generated.environ["PATH"]]
        )
        with running(generated.folder, cluster.kubeconfig, tmp_path, generated.environ):
            actions = ["syntax", "create", "prepare", "converge", "verify", "destroy"]
            assert generated.molecule("test", scenario="kind") == dict.fromkeys(actions, True)
        name, image = "molecule-shop-operator", "localhost/shop-operator:testing"
        assert (programs / "docker.said").read_text() == f"docker build --tag={image} {generated.folder}\n"
        assert (programs / "kind.said").read_text().splitlines() == [
            "kind get clusters",
            f"kind create cluster --name={name} --wait=120s",
            f"kind load docker-image --name={name} {image}",
            f"kind delete cluster --name={name}",
        ]
