"""A real control plane on this machine: etcd, API server, controllers, scheduler, and kwok for nodes.

    from runner import devcluster

    with devcluster.start() as cluster:
        subprocess.run([cluster.kubectl, "--kubeconfig", cluster.kubeconfig, "get", "nodes"], check=True)

Promises: TLS with an authority of its own, RBAC on, everything on the loopback interface, any number side by side;
ready in about five seconds once its programs are on this machine; gone with the process that started it, however
that ends. `ansible-operator cluster up` starts one that stays. The pytest fixtures are in `pytest_plugin`.

Caveats, all of kwok's making: pods are simulated, no image is ever run. `kubectl exec` runs the command on this
machine, as you; a failing one always counts as exit code 1 (which `k8s_exec` of kubernetes.core cannot read), and the
end of its input does not reach it, so that `kubectl cp` into a pod hangs (`k8s_cp` does not). kwok's port has no login
of its own, so that other users of this machine could run commands through it: on a shared machine, start no cluster.
There is no storage class, so a claim stays pending.

Importing this package must stay cheap: pytest does it at every start.
"""

from __future__ import annotations

from runner.devcluster.cluster import DevCluster, start
from runner.errors import ClusterError

__all__ = ["ClusterError", "DevCluster", "start"]
