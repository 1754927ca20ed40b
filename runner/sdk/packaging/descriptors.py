"""Descriptors for OLM's consoles, from the schema of a CRD. Pure.

https://github.com/openshift/console/blob/main/frontend/packages/operator-lifecycle-manager/src/components/descriptors/reference/reference.md
lists the capabilities that consoles support.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_UI = "urn:alm:descriptor:com.tectonic.ui:"
_CONDITIONS = "urn:alm:descriptor:io.kubernetes.conditions"
_DEEPEST = 3
_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|[-_.\s]+")
_BY_TYPE = {"integer": "number", "number": "number", "boolean": "booleanSwitch", "string": "text"}
_WORKS = {
    **dict.fromkeys(("pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts"), "v1"),
    **dict.fromkeys(("deployments", "statefulsets", "daemonsets", "replicasets"), "v1"),
    **dict.fromkeys(("jobs", "cronjobs", "ingresses", "networkpolicies", "roles", "rolebindings"), "v1"),
}
_KINDS = {
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "serviceaccounts": "ServiceAccount",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "replicasets": "ReplicaSet",
    "cronjobs": "CronJob",
    "ingresses": "Ingress",
    "networkpolicies": "NetworkPolicy",
    "rolebindings": "RoleBinding",
}


def of_spec(schema: Mapping[str, Any]) -> list[Json]:
    """Return descriptors of the fields of `spec`, including nested ones."""
    return list(_fields(schema, "", 1))


def of_status(schema: Mapping[str, Any]) -> list[Json]:
    """Return descriptors of `status`: its conditions, and its simple fields."""
    found = []
    for name, field in (schema.get("properties") or {}).items():
        descriptor = _descriptor(name, name, field)
        found.append({**descriptor, "x-descriptors": [_CONDITIONS]} if name == "conditions" else descriptor)
    return found


def resources(rules: list[Json]) -> list[Json]:
    """Return the built-in kinds that RBAC rules allow an operator to create."""
    plurals = {
        resource
        for rule in rules
        if {"create", "*"} & set(rule.get("verbs") or ())
        for resource in rule.get("resources") or ()
    }
    return [
        {"kind": _KINDS.get(plural, plural.removesuffix("s").capitalize()), "name": "", "version": _WORKS[plural]}
        for plural in sorted(plurals & set(_WORKS))
    ]


def title(name: str) -> str:
    """Return a field's name as a title: `secretName` becomes Secret Name."""
    return " ".join(word[:1].upper() + word[1:] for word in _BREAK.split(name) if word)


def _fields(schema: Mapping[str, Any], prefix: str, depth: int) -> Iterator[Json]:
    for name, field in (schema.get("properties") or {}).items():
        path = f"{prefix}{name}"
        if field.get("properties") and depth < _DEEPEST:
            yield from _fields(field, f"{path}.", depth + 1)
            continue
        descriptor = _descriptor(path, name, field)
        known = list(_capabilities(field))
        yield {**descriptor, "x-descriptors": [f"{_UI}{each}" for each in known]} if known else descriptor


def _descriptor(path: str, name: str, field: Mapping[str, Any]) -> Json:
    text = str(field.get("description") or "").strip()
    return {"path": path, "displayName": title(name), **({"description": text} if text else {})}


def _capabilities(field: Mapping[str, Any]) -> Iterator[str]:
    if field.get("enum"):
        yield from (f"select:{value}" for value in field["enum"])
    elif field.get("format") == "password":
        yield "password"
    elif field.get("type") in _BY_TYPE:
        yield _BY_TYPE[str(field["type"])]
