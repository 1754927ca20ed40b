"""What of a Deployment the operator is. Pure."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pod(deployment: Json) -> Json:
    """The spec of its pods."""
    found: Json = deployment["spec"]["template"]["spec"]
    return found


def container(deployment: Json) -> Json:
    """The container `manager`; where none is called so, the first one."""
    containers: list[Json] = pod(deployment)["containers"]
    return next((each for each in containers if each.get("name") == "manager"), containers[0])
