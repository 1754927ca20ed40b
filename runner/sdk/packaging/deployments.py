"""The operator's Deployment, its pod and its container. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.values.errors import ConfigError

Json = dict[str, Any]

MANAGER = "controller-manager"
"""End of the name of the operator's Deployment, if there are several Deployments."""


def operators(documents: Sequence[Json]) -> Json:
    """Return the operator's own Deployment.

    Raises:
        ConfigError: it is missing, or several Deployments are possible.
    """
    deployments = [document for document in documents if document.get("kind") == "Deployment"]
    managers = [
        deployment for deployment in deployments if str(deployment["metadata"].get("name")).endswith(MANAGER)
    ] or deployments
    if len(managers) != 1:
        raise ConfigError(
            f"the manifests contain {len(managers)} Deployments that may be the operator's; "
            f"exactly one name must end with {MANAGER!r}"
        )
    return managers[0]


def pod(deployment: Json) -> Json:
    """Return the spec of the Deployment's pods."""
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def container(deployment: Json) -> Json:
    """Return the container `manager`; without one, the first container."""
    containers: list[Json] = pod(deployment)["containers"]
    return next((candidate for candidate in containers if candidate.get("name") == "manager"), containers[0])


def image(documents: Sequence[Json]) -> str:
    """Return the image of the operator's container; empty without one. Raises ConfigError as `operators`."""
    return str(container(operators(documents)).get("image") or "")
