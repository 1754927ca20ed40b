"""A pod that kwok plays, with the log of an operator that runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from runner.sdk.devcluster import DevCluster, kwok
from tests.kit.cluster import kubectl_of


def show_in_a_pod(devcluster: DevCluster, log: str, namespace: str, file: Path) -> Callable[[], str]:
    """Have a pod whose log is this, as a kubelet would keep it; return `kubectl logs -c manager` of it."""
    file.write_text("".join(kwok.log_line(line, datetime.now(UTC)) for line in log.splitlines()))
    kubectl = kubectl_of(devcluster, f"--namespace={namespace}")
    # Without its namespace's account no pod is taken; after an outage of the API server controllers are late.
    kubectl.wait("serviceaccount/default", "--for=create")
    kubectl("run", "manager", "--image=operator")
    kubectl.wait("pod/manager", "--for=condition=Ready")
    devcluster.set_pod_logs(namespace, "manager", file)
    return lambda: kubectl("logs", "pod/manager", "-c", "manager")
