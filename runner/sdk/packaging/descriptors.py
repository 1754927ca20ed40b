"""Descriptors for OLM's consoles, from the schema of a CRD, and the project's base ClusterServiceVersion.

https://github.com/openshift/console/blob/main/frontend/packages/operator-lifecycle-manager/src/components/descriptors/reference/reference.md
lists the capabilities that consoles support.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from runner.sdk.packaging import manifests
from runner.sdk.scaffold import templates
from runner.sdk.scaffold.project import Project
from runner.values.errors import ConfigError

Json = dict[str, Any]

_UI = "urn:alm:descriptor:com.tectonic.ui:"
_CONDITIONS = "urn:alm:descriptor:io.kubernetes.conditions"
_DEEPEST = 3
_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|[-_.\s]+")
_BY_TYPE = {"integer": "number", "number": "number", "boolean": "booleanSwitch", "string": "text"}
_WORKS = frozenset(
    {
        *("pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts", "deployments"),
        *("statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs", "ingresses", "networkpolicies", "roles"),
        "rolebindings",
    }
)
"""Built-in kinds whose version is v1."""
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
    descriptors = []
    for name, field in (schema.get("properties") or {}).items():
        descriptor = _descriptor(name, name, field)
        descriptors.append({**descriptor, "x-descriptors": [_CONDITIONS]} if name == "conditions" else descriptor)
    return descriptors


def resources(rules: list[Json]) -> list[Json]:
    """Return the built-in kinds that RBAC rules allow an operator to create."""
    plurals = {
        resource
        for rule in rules
        if {"create", "*"} & set(rule.get("verbs") or ())
        for resource in rule.get("resources") or ()
    }
    return [
        {"kind": _KINDS.get(plural, plural.removesuffix("s").capitalize()), "name": "", "version": "v1"}
        for plural in sorted(plurals & _WORKS)
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
        yield {**descriptor, "x-descriptors": [f"{_UI}{capability}" for capability in known]} if known else descriptor


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


_ROOT = Path(__file__).parent / "templates"
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><circle cx="32" cy="32" r="30" fill="#1a5276"/>'
    '<path d="M18 46 32 14l14 32M24 36h16" fill="none" stroke="#fff" stroke-width="5"/></svg>'
)
_BUNDLE = Path("bundle/manifests")


def ensure(project: Project) -> None:
    """Create the project's own ClusterServiceVersion if it is missing."""
    path = Path(f"config/manifests/bases/{project.name}.clusterserviceversion.yaml")
    if path.exists():
        return
    kinds = sorted({resource.kind for resource in project.resources})
    values = {
        "name": project.name,
        "domain": project.domain,
        "title": title(project.name),
        "kinds": ", ".join(kinds) or "its kinds",
        "keyword": kinds[0].lower() if kinds else project.name,
        "maintainer": manifests.git("config", "user.name") or "Maintainers",
        "email": manifests.git("config", "user.email") or f"maintainers@{project.domain}",
        "icon": base64.b64encode(_ICON.encode()).decode(),
    }
    [(_, text)] = templates.tree("bundle", values, _ROOT)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def name_before(package: str, version: str) -> str:
    """Return the bundle that this version upgrades: the one in bundle/ if it is older, or the one that it upgrades."""
    path = _BUNDLE / f"{package}.clusterserviceversion.yaml"
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        known = str(spec["version"])
        if known == version:
            return str(spec.get("replaces") or "")
        return f"{package}.v{known.replace('+', '-')}" if manifests.key(known) < manifests.key(version) else ""
    except FileNotFoundError:
        return ""
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not a valid ClusterServiceVersion to upgrade from: {error}") from None


def created_at() -> str:
    """Return the time of the last commit, or of SOURCE_DATE_EPOCH, so that builds are reproducible."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or manifests.git("log", "-1", "--format=%ct")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
