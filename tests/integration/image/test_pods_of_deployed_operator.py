"""The operator in its image: its runs in pods reach it through its Service, with only the generated permissions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from tests.integration.scaffold.installed import get
from tests.kit.images import BASE, Store, needs_images_on_a_node
from tests.kit.places import BIN
from tests.kit.shell import Sh, shell
from tests.kit.wait import patience, wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("pods"),
    needs_images_on_a_node(),
]

HOME, WATCHED = "errand-operator-system", "errands"
IMAGE = "example.com/errand-operator:v0.0.1"
"""Also the image of runs: it has the collections that the role uses."""
DEPLOYMENT = "deployment/errand-operator-controller-manager"
RUNS = "--selector=app.kubernetes.io/component=run"

IN_PODS = f"""\
  isolation: pod
  podTemplate:
    image: {IMAGE}
    securityContext:
      runAsNonRoot: true
"""
ROLE = """---
- name: Record the errand
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-done"
        namespace: "{{ ansible_operator_meta.namespace }}"
"""
OF_ROLE = """\
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [create, get, list, patch, watch]
"""


@pytest.fixture(scope="module")
def sh(
    store: Store, galaxy_config: Path, node_cluster: clusters.DevCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sh]:
    """Run a command in the project of an operator that is deployed for one namespace. A kind is cluster-scoped."""
    folder = tmp_path_factory.mktemp("project") / "errand-operator"
    folder.mkdir()
    for line in (
        "init --domain example.net",
        "create api --group lab --kind Errand",
        "create api --group lab --kind Mission --namespaced=false",
        "create api --group lab --kind Sprint",
    ):
        subprocess.run([BIN / "ansible-operator", *line.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        if "--kind" in line:
            with (folder / "watches.yaml").open("a") as file:
                file.write(IN_PODS + ("  warmPods: 1\n" if "Sprint" in line else ""))
    for name in ("errand", "sprint"):
        (folder / f"roles/{name}/tasks/main.yml").write_text(ROLE)
    with (folder / "config/rbac/role.yaml").open("a") as file:
        file.write(OF_ROLE)
    run = shell(folder, node_cluster, store.environ({"/etc/ansible/ansible.cfg": galaxy_config}))
    run("ansible-operator", "generate", "pods")
    run("kubectl", "create", "namespace", WATCHED)
    run("kubectl", "label", "namespace", WATCHED, "pod-security.kubernetes.io/enforce=restricted")
    make = (f"IMG={IMAGE}", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}", f"WATCH_NAMESPACES={WATCHED}")
    run("make", "docker-build", "deploy", *make)
    run("kubectl", "rollout", "status", DEPLOYMENT, f"--namespace={HOME}", f"--timeout={patience():.0f}s")
    yield run
    run("make", "undeploy", "TIMEOUT=120s", *make)
    run("kubectl", "delete", "namespace", WATCHED)


@pytest.mark.parametrize(
    ("kind", "space", "of_run"),
    [("Errand", WATCHED, WATCHED), pytest.param("Mission", "", HOME, marks=pytest.mark.nightly)],
    ids=["namespaced", "cluster"],
)
def test_an_object_runs_in_a_pod_with_the_generated_manifests(
    sh: Sh, tmp_path: Path, kind: str, space: str, of_run: str
) -> None:
    metadata = {"name": "one", **({"namespace": space} if space else {})}
    (tmp_path / "one.yaml").write_text(
        json.dumps({"apiVersion": "lab.example.net/v1alpha1", "kind": kind, "metadata": metadata})
    )
    sh("kubectl", "apply", f"--filename={tmp_path}/one.yaml")
    named = (f"{kind}/one", *((f"--namespace={space}",) if space else ()))
    told = sh("kubectl", "wait", "--for=condition=Successful", *named, f"--timeout={patience():.0f}s", check=False)
    log = sh("kubectl", "logs", DEPLOYMENT, f"--namespace={HOME}")
    if "condition met" not in told:
        status = sh("kubectl", "get", *named, "--output=yaml")
        pods = sh("kubectl", "describe", "pods", f"--namespace={of_run}", RUNS)
        of_runs = sh("kubectl", "logs", f"--namespace={of_run}", RUNS, "--tail=-1", check=False)
        pytest.fail("\n".join((told, status, pods, of_runs, log[-4000:])))
    uid = get(sh, *named)["metadata"]["uid"]
    (job,) = get(sh, "jobs", f"--namespace={of_run}", f"--selector=ansible.sdk.operatorframework.io/run-of={uid}")[
        "items"
    ]
    assert [each["uid"] for each in job["metadata"]["ownerReferences"]] == [uid]
    if space:
        assert get(sh, "configmap", "one-done", f"--namespace={space}")["metadata"]["ownerReferences"][0]["uid"] == uid
    assert "forbidden" not in log.lower()
    assert "lacks a right" not in log


def test_an_object_runs_in_a_warm_pod_with_the_generated_manifests(sh: Sh, tmp_path: Path) -> None:
    idle = "--selector=ansible.sdk.operatorframework.io/warm-pod-of=Sprint,!ansible.sdk.operatorframework.io/run-of"
    wait_until(lambda: get(sh, "pods", f"--namespace={HOME}", idle)["items"], "a warm pod")
    (pod,) = get(sh, "pods", f"--namespace={HOME}", idle)["items"]
    (job,) = get(sh, "jobs", f"--namespace={HOME}", "--selector=ansible.sdk.operatorframework.io/warm-pod-of")["items"]
    assert [each["kind"] for each in job["metadata"]["ownerReferences"]] == ["ReplicaSet"]

    def log() -> str:
        return sh("kubectl", "logs", DEPLOYMENT, f"--namespace={HOME}")

    wait_until(lambda: "A warm pod is ready" in log(), "its agent")
    body = {
        "apiVersion": "lab.example.net/v1alpha1",
        "kind": "Sprint",
        "metadata": {"name": "one", "namespace": WATCHED},
    }
    (tmp_path / "sprint.yaml").write_text(json.dumps(body))
    sh("kubectl", "apply", f"--filename={tmp_path}/sprint.yaml")
    sh(
        "kubectl",
        "wait",
        "--for=condition=Successful",
        "Sprint/one",
        f"--namespace={WATCHED}",
        f"--timeout={patience():.0f}s",
    )
    uid = get(sh, "Sprint/one", f"--namespace={WATCHED}")["metadata"]["uid"]
    of_run = f"--selector=ansible.sdk.operatorframework.io/run-of={uid}"
    found = wait_until(lambda: get(sh, "pods", f"--namespace={HOME}", of_run)["items"], "the label of the pod")
    assert [each["metadata"]["name"] for each in found] == [pod["metadata"]["name"]]
    assert get(sh, "jobs", f"--namespace={WATCHED}", of_run)["items"] == []
    for problem in ("forbidden", "lacks a right", "Problem of warm pods", "Cannot label"):
        assert problem not in log()
