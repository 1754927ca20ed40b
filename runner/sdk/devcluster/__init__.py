"""A real control plane on this machine: etcd, API server, controllers, scheduler, and nodes.

    from runner.sdk import devcluster

    with devcluster.start() as cluster:
        subprocess.run([cluster.kubectl, "--kubeconfig", cluster.kubeconfig, "get", "nodes"], check=True)

Promises: TLS with a separate CA, RBAC enabled, all ports on the loopback interface, any number of clusters at once. A
cluster is ready in about five seconds if its programs are installed, and stops with the process that started it,
however that exits. `ansible-operator cluster up` starts one that keeps running. `pytest_plugin` contains the fixtures.

The node is a fake one, kwok. `start(nodes="real")` starts a kubelet with containerd in separate namespaces, which runs
pods (`node.py`), and `nodes="both"` starts both. The real node needs Linux and root, and ten more seconds.

Caveats, all caused by kwok:

- Pods on the fake node are simulated, no image is run.
- `kubectl exec` runs no command, except in containers with the secret name `DevCluster.exec_container`. There it runs
  on this machine, as the current user: kwok's port requires no authentication, so other users could connect to it.
- Every failing command has exit code 1, which `k8s_exec` of kubernetes.core cannot parse.
- The end of a command's input is not transmitted, so that `kubectl cp` into a pod hangs (`k8s_cp` does not).
- For the same reason, other users of this machine can read the logs of simulated pods.
- The volumes of claims store nothing.

Importing this package must stay cheap: pytest does it at every start.
"""

from __future__ import annotations

from runner.sdk.devcluster.cluster import DevCluster, start
from runner.values.errors import ClusterError

__all__ = ["ClusterError", "DevCluster", "start"]
