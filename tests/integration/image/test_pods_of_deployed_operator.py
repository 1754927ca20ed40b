"""The operator in its image: its runs in pods reach it through its Service, with only the generated permissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from tests.kit.images import BASE, Store, needs_images_on_a_node
from tests.kit.shell import Sh, generate, shell
from tests.kit.tasks import NAME, config_map
from tests.kit.wait import wait_until

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
    generate(folder, "init --domain example.net")
    for kind, more in (("Errand", ""), ("Mission --namespaced=false", ""), ("Sprint", "  warmPods: 1\n")):
        generate(folder, f"create api --group lab --kind {kind}")
        with (folder / "watches.yaml").open("a") as file:
            file.write(IN_PODS + more)
    for name in ("errand", "sprint"):
        (folder / f"roles/{name}/tasks/main.yml").write_text(config_map(f"{NAME}-done"))
    with (folder / "config/rbac/role.yaml").open("a") as file:
        file.write(OF_ROLE)
    run = shell(folder, node_cluster, store.environ({"/etc/ansible/ansible.cfg": galaxy_config}))
    run("ansible-operator", "generate", "pods")
    run("kubectl", "create", "namespace", WATCHED)
    run("kubectl", "label", "namespace", WATCHED, "pod-security.kubernetes.io/enforce=restricted")
    make = (f"IMG={IMAGE}", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}", f"WATCH_NAMESPACES={WATCHED}")
    run("make", "docker-build", "deploy", *make)
    run.await_rollout(DEPLOYMENT, f"--namespace={HOME}")
    yield run
    run("make", "undeploy", "TIMEOUT=120s", *make)
    run("kubectl", "delete", "namespace", WATCHED)


@pytest.mark.parametrize(
    ("kind", "space", "of_run"),
    [("Errand", WATCHED, WATCHED), pytest.param("Mission", "", HOME, marks=pytest.mark.nightly)],
    ids=["namespaced", "cluster"],
)
def test_an_object_runs_in_a_pod_with_the_generated_manifests(sh: Sh, kind: str, space: str, of_run: str) -> None:
    metadata = {"name": "one", **({"namespace": space} if space else {})}
    sh.apply({"apiVersion": "lab.example.net/v1alpha1", "kind": kind, "metadata": metadata})
    named = (f"{kind}/one", *((f"--namespace={space}",) if space else ()))
    told = sh.wait("--for=condition=Successful", *named, check=False)
    log = sh("kubectl", "logs", DEPLOYMENT, f"--namespace={HOME}")
    if "condition met" not in told:
        status = sh("kubectl", "get", *named, "--output=yaml")
        pods = sh("kubectl", "describe", "pods", f"--namespace={of_run}", RUNS)
        of_runs = sh("kubectl", "logs", f"--namespace={of_run}", RUNS, "--tail=-1", check=False)
        pytest.fail("\n".join((told, status, pods, of_runs, log[-4000:])))
    uid = sh.get(*named)["metadata"]["uid"]
    (job,) = sh.get("jobs", f"--namespace={of_run}", f"--selector=ansible.sdk.operatorframework.io/run-of={uid}")[
        "items"
    ]
    assert [each["uid"] for each in job["metadata"]["ownerReferences"]] == [uid]
    if space:
        assert sh.get("configmap", "one-done", f"--namespace={space}")["metadata"]["ownerReferences"][0]["uid"] == uid
    assert "forbidden" not in log.lower()
    assert "lacks a right" not in log


def test_an_object_runs_in_a_warm_pod_with_the_generated_manifests(sh: Sh) -> None:
    idle = "--selector=ansible.sdk.operatorframework.io/warm-pod-of=Sprint,!ansible.sdk.operatorframework.io/run-of"
    wait_until(lambda: sh.get("pods", f"--namespace={HOME}", idle)["items"], "a warm pod")
    (pod,) = sh.get("pods", f"--namespace={HOME}", idle)["items"]
    (job,) = sh.get("jobs", f"--namespace={HOME}", "--selector=ansible.sdk.operatorframework.io/warm-pod-of")["items"]
    assert [each["kind"] for each in job["metadata"]["ownerReferences"]] == ["ReplicaSet"]

    def log() -> str:
        return sh("kubectl", "logs", DEPLOYMENT, f"--namespace={HOME}")

    wait_until(lambda: "A warm pod is ready" in log(), "its agent")
    metadata = {"name": "one", "namespace": WATCHED}
    sh.apply({"apiVersion": "lab.example.net/v1alpha1", "kind": "Sprint", "metadata": metadata})
    sh.wait("--for=condition=Successful", "Sprint/one", f"--namespace={WATCHED}")
    uid = sh.get("Sprint/one", f"--namespace={WATCHED}")["metadata"]["uid"]
    of_run = f"--selector=ansible.sdk.operatorframework.io/run-of={uid}"
    found = wait_until(lambda: sh.get("pods", f"--namespace={HOME}", of_run)["items"], "the label of the pod")
    assert [each["metadata"]["name"] for each in found] == [pod["metadata"]["name"]]
    assert sh.get("jobs", f"--namespace={WATCHED}", of_run)["items"] == []
    for problem in ("forbidden", "lacks a right", "Problem of warm pods", "Cannot label"):
        assert problem not in log()
