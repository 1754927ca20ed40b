"""The demo: a control plane, the sample operator, and a Memcached that is created, scaled and deleted.

Shows each status and the operator's own log, and ends by itself: exit code 0 when all happened as told. With
`DEMO_KEEP=1` everything stays up until Ctrl-C, and it says how to look around. `KUBECONFIG` is ignored. `--kubeconfig`
and `--context` select a cluster, and `--yes` omits the question. `NODE=real` starts a real node instead of a simulated
one: memcached runs, and answers at a Service.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.base.config.paths import AS_DEPLOYED
from runner.sdk import devcluster
from runner.sdk.devcluster import chosen, images
from runner.sdk.devcluster.cluster import find_kubectl, get_programs, outside
from runner.sdk.devcluster.nodes import Nodes
from runner.values.errors import OperatorError
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.wait import wait_until

ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 180.0
"""Seconds that each step may take."""


_IMAGE = "docker.io/library/memcached:1.6-alpine"
"""The default of the role."""
_DEPLOYMENT, _PORT = "memcached-sample-memcached", 11211


class DemoError(Exception):
    """A step did not come to what it should."""


_HAS_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _step(text: str) -> None:
    """Print a headline."""
    print(f"\033[1;36m=== {text}\033[0m" if _HAS_COLOUR else f"=== {text}", flush=True)


def _line(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Run the demo; return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    chosen.add_options(parser)
    arguments = parser.parse_args()
    try:
        _demo(arguments)
    except (AssertionError, DemoError, OperatorError) as error:
        _step(f"The demo failed: {error}")
        return 1
    except KeyboardInterrupt:
        _step("Ended")
        return 0
    return 0


def _demo(arguments: argparse.Namespace) -> None:
    node = {Nodes.FAKE: "kwok", Nodes.REAL: "kubelet"}.get(Nodes(_nodes()), "kwok, kubelet")
    _step(f"Control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, {node}")
    with _cluster(arguments) as cluster:
        kubectl = kubectl_of(cluster)
        _line(kubectl("get", "nodes").rstrip())
        _step("The kind Memcached, and the operator that runs roles/memcached for it")
        kubectl("apply", "-k", str(ROOT / "config/crd"))
        kubectl("wait", "--for=condition=Established", "crd/memcacheds.cache.example.com", "--timeout=30s")
        with _operator(cluster.kubeconfig):
            is_own = not (arguments.kubeconfig or arguments.context)
            _life_of_a_memcached(kubectl, answers=is_own and _nodes() != Nodes.FAKE)
            if os.environ.get("DEMO_KEEP") == "1":
                _keep(cluster)


@contextmanager
def _cluster(arguments: argparse.Namespace) -> Iterator[devcluster.DevCluster]:
    """The selected cluster, or one that lives as long as the demo."""
    if arguments.kubeconfig or arguments.context:
        with tempfile.TemporaryDirectory(prefix="ansible-operator-demo-") as folder:
            kubectl = find_kubectl(os.environ) or get_programs(os.environ, sys.stderr)["kubectl"]
            found = chosen.choose(arguments.kubeconfig, arguments.context, Path(folder), kubectl, os.environ)
            chosen.confirm(found, "Apply the CRD Memcached and run the sample operator", yes=arguments.yes)
            yield outside(found.path, Path(folder), sys.stderr)
        return
    if ignored := chosen.ignored(os.environ, "DEMO_FLAGS=--kubeconfig=FILE"):
        _line(ignored)
    with devcluster.start(name="demo", nodes=_nodes()) as cluster:
        if _nodes() != Nodes.FAKE:
            _load_memcached(cluster)
        yield cluster


def _nodes() -> str:
    """The nodes that the user wants; simulated ones need neither root nor packages."""
    return os.environ.get("NODE") or Nodes.FAKE


def _load_memcached(cluster: devcluster.DevCluster) -> None:
    from tests.kit import workloads  # noqa: PLC0415 - simulated pods need no image

    made = workloads.archives(sys.stderr, "memcached")["memcached"]
    with tempfile.TemporaryDirectory(prefix="ansible-operator-demo-") as folder:
        cluster.load(images.archive(str(made), _IMAGE, Path(folder), os.environ, sys.stderr))


def _life_of_a_memcached(kubectl: Kubectl, *, answers: bool) -> None:
    sample = str(ROOT / "config/samples/cache_v1alpha1_memcached.yaml")
    name = "memcached/memcached-sample"
    _step("A Memcached of size 3")
    kubectl("apply", "-f", sample)
    _show(kubectl, name, wait_until(lambda: _settled(kubectl, name, 3), "size 3 to be reconciled", DEADLINE))
    if answers:
        _step("memcached answers at a Service")
        wait_until(lambda: _ready(kubectl, 3), "3 ready pods", DEADLINE)
        _line(_answer(kubectl))
    _step("Its size becomes 4")
    kubectl("patch", name, "--type=merge", "-p", '{"spec":{"size":4}}')
    _show(kubectl, name, wait_until(lambda: _settled(kubectl, name, 4), "size 4 to be reconciled", DEADLINE))
    _step("It is deleted; the finalizer role cleans up")
    kubectl("delete", name, "--timeout=120s")
    if kubectl.get(name):
        raise DemoError(f"{name} is still there after its deletion")
    wait_until(
        lambda: "memcached-sample" not in kubectl("get", "deployments", "-o", "name"), "the Deployment to go", DEADLINE
    )
    _line("memcached-sample and its Deployment are gone")
    _step("Done")


def _ready(kubectl: Kubectl, count: int) -> bool:
    found = kubectl.get(f"deployment/{_DEPLOYMENT}")
    return bool(found.get("status", {}).get("readyReplicas") == count)


def _answer(kubectl: Kubectl) -> str:
    """Store a value in memcached through a Service, and return the response to reading it."""
    kubectl("expose", "deployment", _DEPLOYMENT, "--name=demo", f"--port={_PORT}")
    with kubectl.start("port-forward", "service/demo", f":{_PORT}", "--address=127.0.0.1") as forwarding:
        line = forwarding.stdout.readline() if forwarding.stdout else ""
        match = re.search(r"127\.0\.0\.1:(\d+)", line)
        if match is None:
            raise DemoError(f"kubectl port-forward: {line.strip() or 'no output'}")
        with socket.create_connection(("127.0.0.1", int(match[1])), timeout=10) as client:
            client.sendall(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n")
            received = b"".join(iter(lambda: client.recv(1024), b"")).decode()
    kubectl("delete", "service", "demo")
    if "STORED" not in received or "hello" not in received:
        raise DemoError(f"memcached answered {received!r}")
    return " ".join(received.split())


def _settled(kubectl: Kubectl, name: str, size: int) -> dict[str, Any] | None:
    """The object, once a run of this size has succeeded."""
    obj = kubectl.get(name)
    if not obj:
        return None
    conditions = {entry["type"]: entry for entry in obj.get("status", {}).get("conditions", [])}
    if conditions.get("Failure", {}).get("status") == "True":
        raise DemoError(f"the run failed: {conditions['Failure']['message']}")
    successful = conditions.get("Successful", {})
    current = successful.get("observedGeneration") == obj["metadata"]["generation"]
    done = successful.get("status") == "True" and current and len(obj["status"].get("nodes", [])) == size
    return obj if done else None


def _show(kubectl: Kubectl, name: str, obj: dict[str, Any]) -> None:
    _line(kubectl("get", name).rstrip())
    _line(f"status.nodes: {', '.join(obj['status']['nodes'])}")
    for entry in obj["status"]["conditions"]:
        result = f"  ansibleResult: {json.dumps(entry['ansibleResult'])}" if "ansibleResult" in entry else ""
        _line(f"{entry['type']}={entry['status']} ({entry['reason']}) {entry['message']}{result}")


@contextmanager
def _operator(kubeconfig: Path) -> Iterator[None]:
    """The installed command, as a user starts it; its log goes to the screen."""
    command = [str(Path(sys.executable).with_name("ansible-operator")), "run", f"--kubeconfig={kubeconfig}"]
    quiet = [
        "--proxy-port=0",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--namespace=default",
        "--log-format=console",
    ]
    process = subprocess.Popen(
        [*command, *quiet], cwd=ROOT, env={**os.environ, **AS_DEPLOYED}, stderr=subprocess.STDOUT
    )
    try:
        yield
    finally:
        process.terminate()
        code = process.wait(timeout=60)
    if code:
        raise DemoError(f"the operator ended with exit code {code}")


def _keep(cluster: devcluster.DevCluster) -> None:
    _step("Everything stays up; Ctrl-C ends it. In another terminal:")
    _line(f"export KUBECONFIG={cluster.kubeconfig}")
    _line(f"{cluster.kubectl} apply -f {ROOT}/config/samples/cache_v1alpha1_memcached.yaml")
    _line(f"{cluster.kubectl} get memcacheds,deployments,pods")
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
