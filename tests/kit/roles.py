"""Tasks of roles that several tests use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

NAME, NAMESPACE = "{{ ansible_operator_meta.name }}", "{{ ansible_operator_meta.namespace }}"


def config_map(
    name: str = NAME,
    data: Mapping[str, str] | None = None,
    *,
    namespace: str = NAMESPACE,
    task: str = "Write a ConfigMap",
    **fields: Any,
) -> str:
    """Return a task that writes a ConfigMap, by default that of its object; `fields` are more fields of the task."""
    definition = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    if data:
        definition["data"] = dict(data)
    made = {"name": task, "kubernetes.core.k8s": {"definition": definition}, **fields}
    return yaml.safe_dump([made], sort_keys=False, width=1000)
