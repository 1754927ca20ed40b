"""One running control plane: what can be done on it."""

from __future__ import annotations

import base64
import json
import re
import socket
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.sdk.devcluster import DevCluster, kwok
from tests.kit.cluster import Kubectl
from tests.kit.processes import captured
from tests.kit.wait import patience, wait_until


def test_the_kubeconfig_belongs_to_its_user_alone(kubeconfig: Path) -> None:
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(kubeconfig.parent.stat().st_mode) == 0o700


def test_client_and_server_have_the_promised_version(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "--output=json"))
    assert version["clientVersion"]["gitVersion"] == version["serverVersion"]["gitVersion"] == "v1.35.4"


def test_jobs_complete(kubectl: Kubectl) -> None:
    kubectl("create", "job", "once", "--image=busybox", "--", "true")
    kubectl.wait("job/once", "--for=condition=Complete")


def test_a_stateful_set_with_claims_becomes_ready_and_its_volumes_are_free_again(kubectl: Kubectl) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    pods = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "postgres"}]}}
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": pods,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    kubectl("apply", "-f", "-", stdin=json.dumps(made))
    kubectl("rollout", "status", "statefulset/db", f"--timeout={patience():.0f}s")
    volume = kubectl("get", "pvc/data-db-0", "--output=jsonpath={.spec.volumeName}")
    kubectl("delete", "statefulset/db", "pvc/data-db-0", "pvc/data-db-1")
    kubectl.wait(f"pv/{volume}", "--for=jsonpath={.status.phase}=Available")


def test_the_token_of_a_service_account_is_accepted_and_has_no_rights(
    devcluster: DevCluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot").strip()
    authority = tmp_path / "ca.crt"
    text = kubectl("config", "view", "--raw", "--output=jsonpath={.clusters[0].cluster.certificate-authority-data}")
    authority.write_bytes(base64.b64decode(text))
    as_robot = [
        str(devcluster.kubectl),
        "--kubeconfig=/dev/null",
        f"--server={devcluster.url}",
        f"--certificate-authority={authority}",
        f"--token={token}",
        f"--namespace={namespace}",
    ]
    who = subprocess.run([*as_robot, "auth", "whoami", "--output=json"], capture_output=True, text=True, check=True)
    assert json.loads(who.stdout)["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:robot"
    refused = captured(*as_robot, "get", "pods")
    assert "Forbidden" in refused.stderr
    kubectl("create", "rolebinding", "robot", "--clusterrole=view", f"--serviceaccount={namespace}:robot")
    # The authorizer learns of rights a moment after they were given.
    wait_until(lambda: subprocess.run([*as_robot, "get", "pods"], capture_output=True, check=False).returncode == 0)


def test_requests_without_valid_credentials_are_refused(devcluster: DevCluster) -> None:
    command = [
        str(devcluster.kubectl),
        "--kubeconfig=/dev/null",
        f"--server={devcluster.url}",
        "--insecure-skip-tls-verify",
    ]
    refused = captured(*command, "get", "namespaces", "--token=guessed")
    assert "Unauthorized" in refused.stderr


def test_a_pod_has_a_log_without_having_a_file(kubectl: Kubectl, pod: str) -> None:
    assert kubectl("logs", pod) == f"{kwok.NO_LOG}\n"


def test_no_command_runs_in_an_ordinary_pod(kubectl: Kubectl, pod: str) -> None:
    """kwok's port requires no authentication: any user of this machine can connect to it."""
    assert "no exec" in kubectl.run("exec", pod, "--", "true", check=False).stderr


def test_a_user_who_connects_to_kwok_runs_no_command(kubectl: Kubectl, pod: str, tmp_path: Path) -> None:
    port = kubectl("get", "nodes", "-o=jsonpath={.items[0].status.daemonEndpoints.kubeletEndpoint.Port}")
    namespace = kubectl("get", "pod", pod, "-o=jsonpath={.metadata.namespace}")
    made = tmp_path / "made"
    key = base64.b64encode(bytes(16)).decode()
    request = (
        f"GET /exec/{namespace}/{pod}/{pod}?command=touch&command={made}&output=1 HTTP/1.1\r\nHost: node\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(port)), timeout=patience()) as connection:
        connection.sendall(request.encode())
        received = b""
        while b"no exec" not in received:
            part = connection.recv(4096)
            assert part, received
            received += part
    assert not made.exists()


def test_a_command_runs_and_sees_no_secrets(kubectl: Kubectl, exec_pod: str) -> None:
    out = kubectl("exec", exec_pod, "--", "sh", "-c", "echo here; env")
    assert out.startswith("here\n")
    assert "KUBECONFIG" not in out


@contextmanager
def _forwarded(devcluster: DevCluster, namespace: str, pod: str, port: int) -> Iterator[int]:
    command = [str(devcluster.kubectl), f"--kubeconfig={devcluster.kubeconfig}", "--namespace", namespace]
    command += ["port-forward", pod, f":{port}", "--address=127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        assert forwarding.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert match
        yield int(match[1])
        forwarding.kill()


def test_a_port_without_a_target_responds(devcluster: DevCluster, namespace: str, pod: str) -> None:
    with (
        _forwarded(devcluster, namespace, pod, 80) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=patience()) as answer,
    ):
        assert b"simulated" in answer.read()


def test_each_test_has_a_namespace_of_its_own(kubectl: Kubectl, namespace: str) -> None:
    assert not kubectl("get", "pods,configmaps", "--field-selector=metadata.name!=kube-root-ca.crt", "--output=name")
    assert namespace.startswith("test-")
