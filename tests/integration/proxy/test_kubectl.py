"""kubectl through the proxy, as a role's `command` task starts it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.sdk.devcluster import DevCluster, kwok
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.integration.proxy.bed import Standing
    from tests.kit.cluster import Kubectl


CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine}\ndata: {a: b}\n"


def test_kubectl_needs_no_login_and_shows_what_the_api_server_answers_to_the_operator(kubectl: Kubectl) -> None:
    assert re.search(r"Username\s+admin", kubectl("auth", "whoami"))
    assert "alice" in kubectl("auth", "whoami", "--as=alice", "--as-group=system:authenticated")
    denied = kubectl.run("get", "configmaps", "--as=alice", check=False)
    assert 'User "alice" cannot list resource "configmaps"' in denied.stderr
    assert re.search(r"NAME\s+DATA\s+AGE\n", kubectl("get", "configmaps"))
    assert "kind: ConfigMap" in kubectl("get", "configmap", "owner", "-o=yaml")
    missing = kubectl.run("get", "configmap", "missing", check=False)
    assert missing.stderr == 'Error from server (NotFound): configmaps "missing" not found\n'
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert re.search(r"^KIND:\s+ConfigMap\nVERSION:\s+v1\n", kubectl("explain", "configmap"))
    assert "replicas" in kubectl("explain", "deployment.spec", "--output=plaintext-openapiv2")
    listed = kubectl("api-resources", "--namespaced", "-o=name").splitlines()
    assert {"configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io"} <= set(listed)
    assert "apps/v1\n" in kubectl("api-versions")


def test_contract_without_a_namespace_kubectl_uses_that_of_the_environment_not_of_the_owner(
    devcluster: DevCluster, kubectl: Kubectl, environ: dict[str, str]
) -> None:
    assert kubectl.run("get", "configmap", "owner", "-o=name").returncode == 0
    command = [str(devcluster.kubectl), "get", "service", "kubernetes", "-o=jsonpath={.metadata.namespace}"]
    assert subprocess.check_output(command, text=True, env=environ) == "default"


def test_written_objects_are_owned_and_reported(kubectl: Kubectl, standing: Standing) -> None:
    for first, later in (
        (("create",), ("replace",)),
        (("create",), ("replace", "--force")),
        (("apply",), ("apply",)),
        (("apply", "--server-side"), ("apply", "--server-side")),
    ):
        standing.observer.reports.clear()
        kubectl(*first, "-f", "-", stdin=CONFIG_MAP)
        assert kubectl.owners("configmap", "mine") == ["owner"]
        assert "wrote configmaps mine of owner" in standing.observer.reports
        assert "read configmaps mine of owner" in standing.observer.reports
        kubectl(*later, "-f", "-", stdin=CONFIG_MAP.replace("a: b", "a: c"))
        assert kubectl.owners("configmap", "mine") == ["owner"]
        assert kubectl("get", "configmap", "mine", "-o=jsonpath={.data.a}") == "c"
        kubectl("delete", "configmap", "mine")


def test_several_documents_and_a_generated_name_are_owned_and_deletions_reported(
    kubectl: Kubectl, standing: Standing
) -> None:
    generated = "---\napiVersion: v1\nkind: Secret\nmetadata: {generateName: gen-, labels: {app: gen}}\n"
    kubectl("create", "-f", "-", stdin=CONFIG_MAP + generated)
    found = json.loads(kubectl("get", "secrets", "-l", "app=gen", "-o=json"))["items"]
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in found] == ["owner"]
    assert kubectl.owners("configmap", "mine") == ["owner"]
    kubectl("delete", "configmap", "mine")
    assert "deleted configmaps mine of owner" in standing.observer.reports


def test_a_watch_follows(kubectl: Kubectl) -> None:
    with kubectl.start("get", "configmaps", "-w", "-o=name") as watching:
        assert watching.stdout is not None
        while watching.stdout.readline() != "configmap/owner\n":
            pass
        kubectl("create", "-f", "-", stdin=CONFIG_MAP)
        while watching.stdout.readline() != "configmap/mine\n":
            pass


def test_a_log_can_be_read_and_followed(
    devcluster: DevCluster, kubectl: Kubectl, namespace: str, pod: str, tmp_path: Path
) -> None:
    log = tmp_path / "web.log"
    log.write_text(kwok.log_line("first", datetime.now(UTC)))
    devcluster.set_pod_logs(namespace, pod, log)
    while kubectl("logs", pod) != "first\n":
        pass
    with kubectl.start("logs", "-f", pod) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        with log.open("a") as more:
            more.write(kwok.log_line("later", datetime.now(UTC)))
        assert following.stdout.readline() == "later\n"


def test_a_pods_output_can_be_attached_to(
    devcluster: DevCluster, kubectl: Kubectl, namespace: str, pod: str, tmp_path: Path
) -> None:
    log = tmp_path / "web.log"
    log.touch()
    devcluster.set_pod_logs(namespace, pod, log)
    seen = threading.Event()

    def speak() -> None:
        # Only what is said after the connection is made is shown.
        while not seen.wait(0.1):
            with log.open("a") as more:
                more.write(kwok.log_line("here", datetime.now(UTC)))

    speaking = threading.Thread(target=speak)
    speaking.start()
    said = ""
    try:
        for _ in range(5):
            with kubectl.start("attach", pod) as attached:
                # One that came before kwok knew of the file waits for another one for ever.
                limit = threading.Timer(20, attached.kill)
                limit.start()
                assert attached.stdout is not None
                said = attached.stdout.readline()
                limit.cancel()
            if said:
                break
    finally:
        seen.set()
        speaking.join()
    assert said == "here\n"


def _echoes(kubectl: Kubectl, pod: str, by: Mapping[str, str]) -> bool:
    return kubectl("exec", "-i", pod, "--", "head", "-n1", stdin="hello\n", **by) == "hello\n"


def test_a_command_runs_in_a_pod_by_websocket_and_by_spdy(kubectl: Kubectl, exec_pod: str) -> None:
    for websockets in ("true", "false"):
        by = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": websockets}
        assert kubectl("exec", exec_pod, "--", "echo", "here", **by) == "here\n"
        # Also without the proxy, the output of a short command with input is lost now and then by SPDY.
        if websockets == "true":
            assert _echoes(kubectl, exec_pod, by)
        else:
            wait_until(partial(_echoes, kubectl, exec_pod, by))
        large = kubectl("exec", exec_pod, "--", "head", "-c", "3000000", "/dev/zero", **by)
        assert len(large) == 3_000_000
        failed = kubectl.run("exec", exec_pod, "--", "sh", "-c", "exit 3", check=False, **by)
        assert "exit status 3" in failed.stderr


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_a_port_is_forwarded(
    devcluster: DevCluster, kubectl: Kubectl, namespace: str, pod: str, websockets: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(connection.recv(100).upper())

        threading.Thread(target=serve, daemon=True).start()
        devcluster.set_pod_port(namespace, pod, 80, server.getsockname()[1])
        by = {"KUBECTL_PORT_FORWARD_WEBSOCKETS": websockets}
        with kubectl.start("port-forward", pod, ":80", "--address=127.0.0.1", **by) as forwarding:
            assert forwarding.stdout is not None
            match = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
            assert match
            answer = b""
            for _ in range(100):
                # Until kwok has the target of the port, its own answer waits for a line that is not sent.
                with (
                    contextlib.suppress(TimeoutError),
                    socket.create_connection(("127.0.0.1", int(match[1])), timeout=patience()) as client,
                ):
                    client.sendall(b"hello")
                    answer = client.recv(100)
                if answer:
                    break
        assert answer == b"HELLO"
        server.shutdown(socket.SHUT_RDWR)


def test_after_its_run_nothing_works_any_more(kubectl: Kubectl, standing: Standing) -> None:
    assert kubectl.run("get", "configmaps").returncode == 0
    standing.revoke()
    wait_until(lambda: kubectl.run("get", "configmaps", check=False).returncode != 0)
    assert "Unauthorized" in kubectl.run("get", "--raw", "/api", check=False).stderr or "logged in" in (
        kubectl.run("get", "--raw", "/api", check=False).stderr
    )
