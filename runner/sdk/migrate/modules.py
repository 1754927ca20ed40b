"""Modules and filters that were moved or removed, and collections that requirements.yml lacks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from runner.compatibility import task_fields, unsupported
from runner.compatibility.finding import Finding, numbers
from runner.compatibility.validation import Task
from runner.sdk.migrate.project import Project

_OLD_COLLECTION, _COLLECTION = "community.kubernetes", "kubernetes.core"
_INCLUDED = {"ansible.builtin", "ansible.legacy", "operator_sdk.util"}
_FQCN = re.compile(r"([a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*)\.([a-z_][a-z0-9_.]*)")
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_TESTS = {
    **{name: name for name in ("success", "succeeded", "failed", "changed", "skipped", "change", "skip")},
    "failure": "failed",
    "version_compare": "version",
}
"""Tests that were filters until Ansible 2.9, and their names."""
_USES = re.compile(r"\|\s*([a-z_][a-z0-9_]*)|\b(?:lookup|query|q)\(\s*['\"]([a-z_][a-z0-9_]*)['\"]")
_FILTERED_JSON = re.compile(r"\{%-?\s*filter\s[^%]*%\}\s*(?:\{%-?\s*include\s[^%]*\.json\b|\[|\{(?![{%#]))")
"""A block that ansible-core 2.18 converts to a list or mapping before the filter."""
_CONVERTS = (2, 10)
"""Ansible 2.9 converted only the result of a template."""
_PROXY = re.compile(r"\b(?:localhost|127\.0\.0\.1):8888\b")


def findings(project: Project) -> Iterator[Finding]:
    """Yield modules, filters and lookups that need a change, and requests to the proxy without a token."""
    all_findings: list[Finding] = []
    for task in project.content.tasks:
        all_findings += _modules(project, task)
        for _, condition in task_fields.conditions(task):
            line = task.source.line(condition.start_mark)
            all_findings += _plugins(project, task.source.file, line, condition.value)
    for path in project.content.files:
        all_findings += _file(project, path)
    all_findings += _requirements(project)
    yield from sorted(set(all_findings))


def _modules(project: Project, task: Task) -> Iterator[Finding]:
    for name, key, _ in task_fields.actions(task):
        file, line = task.source.file, task.source.line(key.start_mark)
        if unsupported.is_removed(name):
            continue  # reported on its own
        fqcn = _FQCN.fullmatch(name)
        collection, short = (fqcn[1], fqcn[2]) if fqcn else ("", name)
        if collection == _OLD_COLLECTION:
            message = f"{_OLD_COLLECTION} was replaced by {_COLLECTION}"
            yield Finding(file, line, "old-collection", message, f"use {_COLLECTION}.{short}", is_automatic=True)
        elif not collection:
            collection = _collection_of("modules", short) or _collection_of("action", short)
        yield from _missing(project, file, line, name, collection)


def _plugins(project: Project, file: str, line: int, text: str) -> Iterator[Finding]:
    for use in _USES.finditer(text):
        name = use[1] or use[2]
        if use[1] in _TESTS:
            message = f"`| {name}` was removed: {_TESTS[name]} is a test, not a filter"
            yield Finding(file, line, "removed-filter", message, f"write `is {_TESTS[name]}` instead of `| {name}`")
        else:
            home = _collection_of("filter" if use[1] else "lookup", name)
            yield from _missing(project, file, line, name, home)
        if name == "json_query" and not project.installs("jmespath"):
            message = "json_query requires the Python package jmespath, which the Dockerfile does not install"
            yield Finding(file, line, "python-package", message, "add `RUN pip3 install jmespath` to the Dockerfile")


def _missing(project: Project, file: str, line: int, name: str, collection: str) -> Iterator[Finding]:
    known = project.installed_collections
    if not collection or collection in _INCLUDED or collection in known:
        return
    if collection == _COLLECTION and _OLD_COLLECTION in known:
        return  # its successor; reported for requirements.yml
    message = f"{name} is in the collection {collection}, which requirements.yml does not contain"
    fix = f"add {collection} to requirements.yml, and install it in the Dockerfile"
    if project.unnamed_collections:
        message += f", unless {', '.join(project.unnamed_collections)} contains it"
        yield Finding(file, line, "missing-collection", message, fix, "check", subject=collection)
        return
    yield Finding(file, line, "missing-collection", message, fix, is_automatic=True, subject=collection)


def _file(project: Project, path: Path) -> Iterator[Finding]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return  # not text, or reported with the role
    file = project.shown(path)
    for expression in _EXPRESSION.finditer(text):
        yield from _plugins(project, file, text.count("\n", 0, expression.start()) + 1, expression[0])
    is_affected = any(numbers(parsed.core)[:2] < _CONVERTS for parsed in project.dockerfiles if parsed.core)
    for block in _FILTERED_JSON.finditer(text) if is_affected else ():
        message = "a filter block with JSON: if lookup('template') reads the file, ansible-core 2.18 fails"
        fix = "add `convert_data=False` to the lookup; ansible-core 2.19 and later need no change"
        yield Finding(file, text.count("\n", 0, block.start()) + 1, "filtered-json", message, fix, "check")
    for address in _PROXY.finditer(text):
        line = text.count("\n", 0, address.start()) + 1
        message = f"{address[0]} is the operator's proxy, which refuses requests without the token of the run"
        fix = "use modules of kubernetes.core or kubectl, or the server and token in the file of K8S_AUTH_KUBECONFIG"
        yield Finding(file, line, "proxy-token", message, fix)


def _requirements(project: Project) -> Iterator[Finding]:
    old = project.collections.get(_OLD_COLLECTION)
    if old is not None:
        message = f"{_OLD_COLLECTION} was replaced by {_COLLECTION}; version 1 requires the Python package openshift"
        fix = f"replace it by {_COLLECTION}"
        yield Finding("requirements.yml", old.line, "old-collection", message, fix, is_automatic=True)
    if (own := project.collections.get("operator_sdk.util")) is not None:
        message = "the image includes operator_sdk.util; an installed version takes precedence over it"
        fix = "delete it from requirements.yml to use the included modules, such as k8s_event"
        yield Finding("requirements.yml", own.line, "included-collection", message, fix, "check")


def _collection_of(kind: str, name: str) -> str:
    """Return the collection to which a plugin moved; empty if ansible-core has it or never had it."""
    entry = _routing().get(kind, {}).get(name)
    target = str(entry.get("redirect", "")) if isinstance(entry, dict) else ""
    fqcn = _FQCN.fullmatch(target)
    return fqcn[1] if fqcn and fqcn[1] not in _INCLUDED and not name.startswith("formerly_") else ""


@cache
def _routing() -> Mapping[str, Any]:
    """Return ansible-core's table of plugins that moved to collections."""
    spec = importlib.util.find_spec("ansible")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        path = Path(folder, "config/ansible_builtin_runtime.yml")
        if path.is_file():
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe loader
            routing = document.get("plugin_routing") if isinstance(document, dict) else None
            return routing if isinstance(routing, dict) else {}
    return {}
