"""An operator with Kopf that does what the roles of bench.others do: a Deployment for each Load."""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config

config.load_kube_config()
apps = client.AppsV1Api()


def deployment(name: str, size: int) -> dict[str, Any]:
    """Return the Deployment of a Load."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]}}
    spec = {"replicas": size, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@kopf.on.create("bench.example.com", "v1", "loads")
@kopf.on.update("bench.example.com", "v1", "loads")
@kopf.on.resume("bench.example.com", "v1", "loads")
def reconcile(spec: kopf.Spec, name: str, namespace: str, **_: Any) -> dict[str, int]:
    """Create the Deployment, or change its size."""
    body = deployment(name, spec["size"])
    kopf.adopt(body)
    try:
        apps.create_namespaced_deployment(namespace, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
        apps.patch_namespaced_deployment(name, namespace, {"spec": {"replicas": spec["size"]}})
    return {"size": spec["size"]}
