"""A pod that kwok plays, with the log of an operator that runs elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from runner.sdk.devcluster import DevCluster, kwok
from tests.kit.wait import patience


def show_in_a_pod(devcluster: DevCluster, log: str, namespace: str, file: Path) -> Callable[[], str]:
    """Have a pod whose log is this, as a kubelet would keep it; return `kubectl logs -c manager` of it."""
    file.write_text("".join(kwok.log_line(line, datetime.now(UTC)) for line in log.splitlines()))
    kubectl = [str(devcluster.kubectl), f"--kubeconfig={devcluster.kubeconfig}", f"--namespace={namespace}"]
    # Without its namespace's account no pod is taken; after an outage of the API server controllers are late.
    account = [*kubectl, "wait", "serviceaccount/default", "--for=create", f"--timeout={patience():.0f}s"]
    subprocess.run(account, check=True, capture_output=True)
    subprocess.run([*kubectl, "run", "manager", "--image=operator"], check=True, capture_output=True)
    subprocess.run([*kubectl, "wait", "pod/manager", "--for=condition=Ready"], check=True, capture_output=True)
    devcluster.set_pod_logs(namespace, "manager", file)
    command = [*kubectl, "logs", "pod/manager", "-c", "manager"]
    return lambda: subprocess.run(command, check=True, capture_output=True, text=True).stdout
