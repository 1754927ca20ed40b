"""Operators in their images, as pods start them: on the real control plane, with a service account's mounted token."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from runner.sdk.devcluster import DevCluster
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.images import Image, hindrance, stop
from tests.kit.wait import wait_for_program

PATIENCE = 120.0
SYSTEM = "crate-operator-system"
ACCOUNT = "crate-operator-controller-manager"
MOUNTED = "run/secrets/kubernetes.io/serviceaccount"
"""/var/run is a link to /run, which here would be this machine's."""
FOREIGN = "1000660000:0"
"""A user that is not in the image, as OpenShift assigns them."""

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("image"),
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(why := hindrance()), reason=why),
]


@dataclass(frozen=True)
class Cluster:
    """The control plane with the project deployed, its pod apart."""

    of: DevCluster
    namespace: str

    @property
    def kubectl(self) -> Kubectl:
        return kubectl_of(self.of)

    def greet(self, greeting: str) -> None:
        body = {
            "apiVersion": "store.example.net/v1alpha1",
            "kind": "Crate",
            "metadata": {"name": "one", "namespace": self.namespace},
            "spec": {"greeting": greeting},
        }
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def greeting(self) -> str:
        found = ("get", "configmap", "one-settings", "--ignore-not-found", "-o", "jsonpath={.data.greeting}")
        return self.kubectl("-n", self.namespace, *found)

    def reason(self) -> str:
        shown = 'jsonpath={.status.conditions[?(@.type=="Running")].reason}'
        return self.kubectl("-n", self.namespace, "get", "crate", "one", "-o", shown)


@pytest.fixture(scope="module")
def deployed(devcluster: DevCluster, project: Path) -> None:
    """Everything of the project's `config/default` but the pod, which tests start. It stays: others do not meet it."""
    cluster = Cluster(devcluster, "")
    manifests = yaml.safe_load_all(cluster.kubectl("kustomize", f"{project}/config/default"))
    given = yaml.safe_dump_all(each for each in manifests if each["kind"] != "Deployment")
    cluster.kubectl("apply", "-f", "-", stdin=given)
    cluster.kubectl.wait("--for=condition=Established", "crd/crates.store.example.net")


@pytest.fixture
def cluster(devcluster: DevCluster, deployed: None, namespace: str) -> Cluster:
    cluster = Cluster(devcluster, namespace)
    account = f"--serviceaccount={SYSTEM}:{ACCOUNT}"
    cluster.kubectl("-n", namespace, "create", "rolebinding", "makes-settings", "--clusterrole=edit", account)
    return cluster


def mount_token(image: Image, cluster: Cluster) -> dict[str, str]:
    """Put into the image's files what a kubelet mounts; return the variables that it sets."""
    view = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--flatten"))["clusters"][0]["cluster"]
    folder = image.root / MOUNTED
    folder.mkdir(parents=True, exist_ok=True)
    authority = yaml.safe_load(f"!!binary {view['certificate-authority-data']}")
    (folder / "ca.crt").write_bytes(authority)
    (folder / "namespace").write_text(SYSTEM)
    (folder / "token").write_text(cluster.kubectl("-n", SYSTEM, "create", "token", ACCOUNT).strip())
    address = urlsplit(view["server"])
    return {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}


@contextmanager
def running(image: Image, cluster: Cluster, log: Path, user: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the image's entrypoint until the block ends."""
    environ = {
        **mount_token(image, cluster),
        "WATCH_NAMESPACE": cluster.namespace,
        "ANSIBLE_GATHERING": "explicit",
    }
    ports = ("--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")
    flags = (*ports, "--proxy-port=0", "--user-metrics-port=0")
    command = image.command(*image.config["Entrypoint"], *flags, user=user, environ=environ)
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()  # process 1 in there goes with it, and all that it started


def reconciles(image: Image, cluster: Cluster, folder: Path, user: str = "") -> None:
    """Run the image, reconcile a created and a changed resource, and end it by SIGTERM."""
    log = folder / "operator.log"
    with running(image, cluster, log, user) as process:
        for greeting in ("hello", "goodbye"):
            cluster.greet(greeting)
            wait_for_program(lambda wanted=greeting: cluster.greeting() == wanted, process, log)  # type: ignore[misc]
        wait_for_program(lambda: cluster.reason() == "Successful", process, log)
        assert stop(process, PATIENCE) == 0, log.read_text(errors="replace")[-4000:]


@pytest.mark.nightly
def test_the_generated_projects_image_reconciles_as_an_arbitrary_user_of_group_0(
    crate: Image, cluster: Cluster, tmp_path: Path
) -> None:
    assert (crate.root / "opt/ansible/.ansible/collections/ansible_collections/kubernetes/core").is_dir()
    reconciles(crate, cluster, tmp_path, user=FOREIGN)


@pytest.mark.nightly
def test_the_image_of_a_project_of_the_go_operator_reconciles(of_go: Image, cluster: Cluster, tmp_path: Path) -> None:
    assert of_go.run("python3", "-c", "import jmespath, netaddr, kubernetes; print('found')") == "found\n"
    reconciles(of_go, cluster, tmp_path)
