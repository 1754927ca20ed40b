"""Kubeconfig files: read, merged and reduced to one context.

Owns the rules (https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/): the first of
several files that has a name wins, and a relative path is relative to its file.

Promises: a `KubeConfig` is self-contained, with certificates and keys as data. Only renewed sources (token files,
credential plugins) stay absolute paths. Invalid input raises ConfigError. Must not import: anything that talks to a
cluster.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from runner.values.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KubeConfig:
    """One context: the API server's address and the identity for it."""

    cluster: Mapping[str, Any]
    """The kubeconfig's `cluster`, with its certificate authority as data."""
    user: Mapping[str, Any]
    """The kubeconfig's `user`, with certificates as data and paths absolute."""
    namespace: str
    origin: str
    """Source files, for messages."""
    context: str = ""
    """Its name; empty for the service account of a pod."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context, and its file."""

    value: Mapping[str, Any]
    file: Path


def read(files: Sequence[Path], context: str | None) -> KubeConfig:
    """Merge `files` and take the named context, or the current one."""
    documents = [(file, _parse(file)) for file in files]
    origin = ", ".join(map(str, files))
    name = context or next((str(c) for _, d in documents if (c := d.get("current-context"))), "")
    contexts = _merge(documents, "contexts", "context")
    if not name:
        known = ", ".join(sorted(contexts)) or "none"
        raise ConfigError(f"{origin}: no current context; name one with --context (known: {known})")
    chosen = _find(contexts, "context", name, origin).value
    cluster = _find(_merge(documents, "clusters", "cluster"), "cluster", str(chosen.get("cluster") or ""), origin)
    user_name = str(chosen.get("user") or "")
    user = _find(_merge(documents, "users", "user"), "user", user_name, origin) if user_name else None
    return KubeConfig(
        cluster=_whole_cluster(cluster),
        user=_whole_user(user) if user is not None else {},
        namespace=str(chosen.get("namespace") or "default"),
        origin=origin,
        context=name,
    )


def _parse(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; check --kubeconfig or KUBECONFIG") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: is not a kubeconfig; it must be a mapping with clusters, users and contexts")
    return content


def _merge(documents: Sequence[tuple[Path, Mapping[str, Any]]], section: str, field: str) -> dict[str, _Entry]:
    merged: dict[str, _Entry] = {}
    for file, document in documents:
        entries = document.get(section) or []
        if not isinstance(entries, list):
            raise ConfigError(f"{file}: {section} should be a list of entries with name and {field}")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise ConfigError(f"{file}: an entry of {section} has no name")
            value = entry.get(field) or {}
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {section} {entry['name']!r}: {field} should be a mapping")
            merged.setdefault(entry["name"], _Entry(value, file))
    return merged


def _find(entries: Mapping[str, _Entry], what: str, name: str, origin: str) -> _Entry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigError(f"{origin}: there is no {what} {name!r} (known: {known})")
    return entries[name]


def is_http(url: str) -> bool:
    """Return whether an HTTP server can have this URL."""
    try:
        parts = urlsplit(url)
        return url.startswith(("https://", "http://")) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, for example
        return False


def _whole_cluster(entry: _Entry) -> dict[str, Any]:
    cluster = dict(entry.value)
    if not is_http(str(cluster.get("server") or "")):
        server = cluster.get("server") or "nothing"
        raise ConfigError(f"{entry.file}: the cluster's server is {server}; write server: https://host:port")
    _embed(cluster, "certificate-authority", entry.file)
    return cluster


def _whole_user(entry: _Entry) -> dict[str, Any]:
    user = dict(entry.value)
    _embed(user, "client-certificate", entry.file)
    _embed(user, "client-key", entry.file)
    if user.get("tokenFile"):
        user["tokenFile"] = str(_beside(entry.file, user["tokenFile"]))
    plugin = user.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        user["exec"] = {**plugin, "command": str(_beside(entry.file, plugin["command"]))}
    return user


def _beside(file: Path, path: str) -> Path:
    """Resolve a path in a kubeconfig."""
    return (file.absolute().parent / path).absolute()


def _embed(section: dict[str, Any], field: str, file: Path) -> None:
    """Replace the path in `field` by the content of its file, unless the content is present."""
    path = section.pop(field, None)
    if not path or section.get(f"{field}-data"):
        return
    try:
        content = _beside(file, str(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {field}: {path}: cannot be read: {error.strerror}") from error
    section[f"{field}-data"] = base64.b64encode(content).decode()
