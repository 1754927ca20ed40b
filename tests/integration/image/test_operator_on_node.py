"""The operator in its image on a real node: its confinement, and what it survives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.kit.images import BASE, Store, needs_images_on_a_node
from tests.kit.shell import Sh, generate, shell
from tests.kit.tasks import NAME, config_map
from tests.kit.wait import patience, wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("image"),
    needs_images_on_a_node(),
]

NAMESPACE = "nap-operator-system"
IMAGE = "example.com/nap-operator:v0.0.1"
DEPLOYMENT = "deployment/nap-operator-controller-manager"
SELECTOR = "--selector=control-plane=controller-manager"

ROLE = """---
- name: Sleep
  ansible.builtin.command: sleep {{ seconds }}
  when: seconds is defined
  changed_when: false
- name: Allocate memory
  ansible.builtin.command:
    # Slowly, so that the operator's limit comes before that of the container.
    argv: [python3, -c, "import time; [(b'x' * (20 << 20), time.sleep(0.3)) for _ in range({{ mebibytes }} // 20)]"]
  when: mebibytes is defined
  changed_when: false
- name: Allocate memory at once, and ignore requests to end
  ansible.builtin.command:
    argv: [python3, -c, "import signal; signal.signal(15, signal.SIG_IGN); b'x' * ({{ burst }} << 20)"]
  when: burst is defined
  changed_when: false
"""

FASTER: dict[str, Any] = {
    # The manifest's limit of 500m is for idle operators.
    "resources": {"limits": {"cpu": "2"}},
    # As in the manifest, but a test cannot wait for minutes.
    # A node without memory, or a busy one, can stop all processes for some seconds.
    "livenessProbe": {
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 5,
        "terminationGracePeriodSeconds": 2,
    },
    "readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 1},
}


class Deployed:
    """An operator that was deployed as its developer does it."""

    def __init__(self, sh: Sh) -> None:
        self.sh = sh

    def get(self, *what: str) -> Any:
        return self.sh.get(*what)

    def pods(self) -> list[Any]:
        """Return the operator's pods, without those that are being deleted."""
        found = self.get("pods", f"--namespace={NAMESPACE}", SELECTOR)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def pod(self) -> str:
        """Return the name of the operator's pod."""
        (pod,) = self.pods()
        name: str = pod["metadata"]["name"]
        return name

    def restarts(self) -> int:
        (pod,) = self.pods()
        restarts: int = pod["status"]["containerStatuses"][0]["restartCount"]
        return restarts

    def was_not_restarted(self, before: int) -> None:
        """Fail with what is known of the container that ended if there were more restarts than `before`."""
        if self.restarts() != before:
            (pod,) = self.pods()
            place = (f"--namespace={NAMESPACE}",)
            events = self.sh("kubectl", "get", "events", *place, "--sort-by=lastTimestamp", check=False)
            log = self.sh("kubectl", "logs", "--previous", DEPLOYMENT, *place, "--tail=30", check=False)
            pytest.fail(f"{pod['status']['containerStatuses']}\n{events}\n{log}")

    def execute(self, *command: str, check: bool = True) -> str:
        return self.sh("kubectl", "exec", self.pod(), f"--namespace={NAMESPACE}", "--", *command, check=check)

    def signal(self, name: str) -> None:
        """Send a signal to the operator, which is the child of the container's first process."""
        script = f"kill -{name} $(cat /proc/1/task/1/children)"
        self.execute("sh", "-c", script)

    def rollout(self) -> None:
        self.sh.await_rollout(DEPLOYMENT, f"--namespace={NAMESPACE}")

    def container(self) -> Any:
        """Return the Deployment's container."""
        deployment = self.get(DEPLOYMENT, f"--namespace={NAMESPACE}")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return container

    def patch_container(self, **fields: Any) -> None:
        pod = {"containers": [{"name": "manager", **fields}], "nodeSelector": {"type": "real"}}
        change = json.dumps({"spec": {"template": {"spec": pod}}})
        self.sh("kubectl", "patch", DEPLOYMENT, f"--namespace={NAMESPACE}", f"--patch={change}")

    def nap(self, name: str, **spec: Any) -> None:
        document = {
            "apiVersion": "lab.example.net/v1alpha1",
            "kind": "Nap",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        self.sh.apply(document)

    def conditions(self, name: str) -> dict[str, Any]:
        return {each["type"]: each for each in self.get("nap", name).get("status", {}).get("conditions", [])}

    def succeeds(self, name: str) -> None:
        told = self.sh.wait("--for=condition=Successful", f"nap/{name}", check=False)
        if "condition met" not in told:
            status = self.sh("kubectl", "get", f"nap/{name}", "--output=yaml")
            log = self.sh("kubectl", "logs", DEPLOYMENT, f"--namespace={NAMESPACE}", "--tail=60", check=False)
            pytest.fail(f"{told}\n{status}\n{log}")

    def begins(self, name: str) -> None:
        wait_until(lambda: self.conditions(name).get("Running", {}).get("reason") == "Running", f"the run of {name}")


def recorded_with_patch(deployed: Deployed) -> str:
    """Return the recorded permissions once they allow to change a ConfigMap; empty before."""
    recorded = deployed.execute("cat", "/tmp/rights.yaml")
    # In its own namespace, the operator itself has that right.
    roles = [role for role in yaml.safe_load_all(recorded) if role["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"]]
    return recorded if any("configmaps" in rule["resources"] and "patch" in rule["verbs"] for rule in rules) else ""


def record_permissions(deployed: Deployed) -> str:
    """Return the permissions that the operator records while it may do everything."""
    account = f"--serviceaccount={NAMESPACE}:nap-operator-controller-manager"
    deployed.sh("kubectl", "create", "clusterrolebinding", "everything", "--clusterrole=cluster-admin", account)
    arguments = [*deployed.container()["args"], "--record-rbac=/tmp/rights.yaml"]
    deployed.patch_container(args=arguments)
    deployed.rollout()
    deployed.nap("recorded")
    deployed.succeeds("recorded")
    deployed.sh("kubectl", "delete", "configmap", "recorded-nap")
    deployed.sh.wait("--for=create", "configmap/recorded-nap")
    deployed.nap("recorded", seconds=0)
    deployed.succeeds("recorded")
    deployed.sh("kubectl", "delete", "nap", "recorded")
    # The file is written once a second.
    recorded = wait_until(lambda: recorded_with_patch(deployed), "the right of the last run")
    deployed.sh("kubectl", "delete", "clusterrolebinding", "everything")
    return recorded


@pytest.fixture(scope="module")
def operator(
    store: Store, galaxy_config: Path, node_cluster: clusters.DevCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("project") / "nap-operator"
    generate(folder, "init --domain example.net", "create api --group lab --kind Nap")
    (folder / "roles/nap/tasks/main.yml").write_text(ROLE + config_map(f"{NAME}-nap"))
    sh = shell(folder, node_cluster, store.environ({"/etc/ansible/ansible.cfg": galaxy_config}))
    make = (f"IMG={IMAGE}", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}")
    sh("make", "docker-build", "deploy", *make)
    deployed = Deployed(sh)
    (folder / "rights.yaml").write_text(record_permissions(deployed))
    sh("ansible-operator", "generate", "rbac", "rights.yaml")
    sh("make", "deploy", *make)
    deployed.patch_container(**FASTER)
    deployed.rollout()
    yield deployed
    sh("make", "undeploy", "TIMEOUT=120s", f"IMG={IMAGE}")


def test_a_fresh_deployment_logs_no_warning(operator: Deployed) -> None:
    operator.nap("fresh")
    operator.succeeds("fresh")
    log = operator.sh("kubectl", "logs", operator.pod(), f"--namespace={NAMESPACE}")
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line["msg"] == "Run ended" for line in lines)
    assert [line for line in lines if line["level"] not in {"debug", "info"}] == []
    assert "warm-engine" not in operator.execute("curl", "--silent", "http://localhost:6789/readyz?verbose")
    operator.sh("kubectl", "delete", "nap", "fresh", f"--timeout={patience():.0f}s")


def test_the_container_may_write_to_its_volume_only_and_has_no_privileges(operator: Deployed) -> None:
    assert operator.execute("id", "-u").strip() == "1001"
    assert "Read-only file system" in operator.execute("touch", "/opt/ansible/x", check=False)
    operator.execute("touch", "/tmp/x")
    assert "CapEff:\t0000000000000000" in operator.execute("cat", "/proc/1/status")


def test_the_recorded_permissions_are_sufficient(operator: Deployed) -> None:
    operator.nap("permitted")
    operator.succeeds("permitted")
    operator.nap("permitted", seconds=0)
    operator.succeeds("permitted")
    operator.sh("kubectl", "delete", "nap", "permitted", f"--timeout={patience():.0f}s")
    log = operator.sh("kubectl", "logs", DEPLOYMENT, f"--namespace={NAMESPACE}")
    assert "forbidden" not in log.lower()


def test_a_run_that_needs_too_much_memory_fails_alone(operator: Deployed) -> None:
    before = operator.restarts()
    operator.nap("greedy", mebibytes=2000)
    wait_until(lambda: operator.conditions("greedy").get("Failure", {}).get("status") == "True", "the failure")
    message = operator.conditions("greedy")["Failure"]["message"]
    assert "--run-memory-limit" in message
    operator.sh("kubectl", "delete", "nap", "greedy")
    operator.nap("modest")
    operator.succeeds("modest")
    operator.was_not_restarted(before)


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory").is_dir(), reason="cgroup version 2: the whole container is killed"
)
def test_a_failure_names_the_limit_if_the_kernel_killed_a_process_of_the_run(operator: Deployed) -> None:
    before = operator.restarts()
    operator.nap("bursting", burst=2000)
    wait_until(lambda: operator.conditions("bursting").get("Failure", {}).get("status") == "True", "the failure")
    message = operator.conditions("bursting")["Failure"]["message"]
    # Usually one; before its memory is free, the kernel can kill a second one.
    assert re.search(r"the kernel killed \d+ process(es)? of the operator's container because memory ran out", message)
    assert "may use 768 MiB, and --run-memory-limit allows 576 MiB" in message
    operator.sh("kubectl", "delete", "nap", "bursting")
    operator.was_not_restarted(before)


@pytest.mark.nightly
def test_an_operator_that_does_not_respond_is_restarted(operator: Deployed) -> None:
    before = operator.restarts()
    operator.signal("STOP")
    wait_until(lambda: operator.restarts() > before, "its restart")
    operator.rollout()
    operator.nap("after-restart")
    operator.succeeds("after-restart")


def test_a_pod_that_is_deleted_finishes_its_runs(operator: Deployed, tmp_path: Path) -> None:
    operator.nap("long", seconds=8)
    operator.begins("long")
    old = operator.pod()
    log = tmp_path / "log"
    pod = f"{old} --namespace={NAMESPACE}"
    operator.sh("sh", "-c", f"kubectl logs --follow {pod} > {log} & kubectl delete pod {pod} --timeout=60s; wait")
    ended = [line for line in log.read_text().splitlines() if "Run ended" in line]
    assert [line for line in ended if "long" in line], log.read_text()[-3000:]
    operator.succeeds("long")
    operator.rollout()


@pytest.mark.nightly
def test_the_standby_continues_when_the_leaders_pod_is_deleted(operator: Deployed) -> None:
    operator.sh("kubectl", "scale", DEPLOYMENT, f"--namespace={NAMESPACE}", "--replicas=2")
    operator.rollout()

    def holder() -> str:
        found = operator.get("lease", "nap-operator", f"--namespace={NAMESPACE}")["spec"].get("holderIdentity") or ""
        return next((each["metadata"]["name"] for each in operator.pods() if each["metadata"]["name"] in found), "")

    leader = wait_until(holder, "a leader")
    operator.sh("kubectl", "delete", "pod", leader, f"--namespace={NAMESPACE}", "--wait=false")
    wait_until(lambda: holder() not in {"", leader}, "another leader")
    operator.nap("handed-over")
    operator.succeeds("handed-over")
    operator.sh("kubectl", "scale", DEPLOYMENT, f"--namespace={NAMESPACE}", "--replicas=1")
    wait_until(lambda: len(operator.pods()) == 1, "one pod")


@pytest.mark.nightly
def test_twenty_runs_at_once_fit_into_the_memory_limit_of_the_manifest(operator: Deployed) -> None:
    container = operator.container()
    assert container["resources"]["limits"]["memory"] == "768Mi"
    operator.patch_container(args=[*container["args"], "--max-concurrent-reconciles=20"])
    operator.rollout()
    names = [f"at-once-{number}" for number in range(20)]
    for name in names:
        operator.nap(name, seconds=10)
    wait_until(lambda: all("Running" in operator.conditions(name) for name in names), "all runs to begin")
    for name in names:
        operator.succeeds(name)
    assert operator.restarts() == 0
