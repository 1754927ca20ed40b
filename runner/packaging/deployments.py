"""The operator's Deployment, its pod and its container. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.errors import ConfigError

Json = dict[str, Any]

MANAGER = "controller-manager"
"""How the name of the operator's Deployment ends, where there are several."""


def operators(documents: Sequence[Json]) -> Json:
    """The operator's own Deployment. ConfigError: there is none, or it cannot be told from others."""
    found = [each for each in documents if each.get("kind") == "Deployment"]
    managers = [each for each in found if str(each["metadata"].get("name")).endswith(MANAGER)] or found
    if len(managers) != 1:
        raise ConfigError(
            f"the manifests contain {len(managers)} Deployments that may be the operator's; "
            f"exactly one name must end with {MANAGER!r}"
        )
    return managers[0]


def pod(deployment: Json) -> Json:
    """The spec of its pods."""
    found: Json = deployment["spec"]["template"]["spec"]
    return found


def container(deployment: Json) -> Json:
    """The container `manager`; where none is called so, the first one."""
    containers: list[Json] = pod(deployment)["containers"]
    return next((each for each in containers if each.get("name") == "manager"), containers[0])
