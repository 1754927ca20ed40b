"""Tasks of roles that several tests use, as YAML without indentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

NAME, NAMESPACE = "{{ ansible_operator_meta.name }}", "{{ ansible_operator_meta.namespace }}"
"""Name and namespace of the custom resource, in a template."""
_SPACE = {"namespace": NAMESPACE}


def task(name: str, module: str, arguments: Any, **more: Any) -> str:
    """Return a task. `more`: its other keywords, such as `when` or `loop`."""
    text: str = yaml.safe_dump([{"name": name, module: arguments, **more}], sort_keys=False, width=10**6)
    return text


def keep(what: str, kind: str, name: str = NAME, fields: dict[str, Any] | None = None, **more: Any) -> str:
    """Return the task "Keep `what`", which keeps an object of a core kind beside the resource."""
    fields = fields or {}
    metadata = {"name": name, **_SPACE, **fields.get("metadata", {})}
    definition = {"apiVersion": "v1", "kind": kind, **fields, "metadata": metadata}
    return task(f"Keep {what}", "kubernetes.core.k8s", {"definition": definition}, **more)


def config_map(
    name: str = NAME,
    data: Mapping[str, str] | None = None,
    *,
    namespace: str = NAMESPACE,
    task_name: str = "Write a ConfigMap",
    **more: Any,
) -> str:
    """Return a task that writes a ConfigMap, by default that of its object."""
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    if data:
        definition["data"] = dict(data)
    return task(task_name, "kubernetes.core.k8s", {"definition": definition}, **more)


def remove(what: str, kind: str, name: str, **more: Any) -> str:
    """Return the task "Remove `what`", which deletes an object of a core kind beside the resource."""
    arguments = {"state": "absent", "api_version": "v1", "kind": kind, "name": name, **_SPACE}
    return task(f"Remove {what}", "kubernetes.core.k8s", arguments, **more)


def status(**fields: Any) -> str:
    """Return the task "Write the status", which writes fields of the status of a Thing."""
    thing = {"api_version": "test.example.com/v1", "kind": "Thing", "name": NAME, **_SPACE}
    return task("Write the status", "operator_sdk.util.k8s_status", {**thing, "status": fields})
