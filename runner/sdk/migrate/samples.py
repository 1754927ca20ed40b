"""Samples and CRDs of watched kinds: templates in values, and names that Ansible itself interprets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from runner.base.yamlfile import nodes
from runner.compatibility import core_changes
from runner.compatibility.finding import Finding
from runner.core.engine import params
from runner.core.watches.watch import Watch
from runner.sdk.migrate.project import Document, Project

_MARKS = ("{{", "{%")


def samples(project: Project) -> list[tuple[Watch, Document]]:
    """Return the objects of watched kinds in the project's manifests, with their watches.

    A kind without such objects has the examples of the bundle.
    """
    pairs = list(_of_watches(project, project.documents))
    kinds = {watch.gvk for watch, _ in pairs}
    return pairs + [pair for pair in _of_watches(project, project.examples) if pair[0].gvk not in kinds]


def _of_watches(project: Project, documents: Iterable[Document]) -> Iterator[tuple[Watch, Document]]:
    watches = {(watch.gvk.group, watch.gvk.kind): watch for watch in project.content.watches}
    for document in documents:
        group = str(document.value.get("apiVersion", "")).rpartition("/")[0]
        watch = watches.get((group, str(document.value.get("kind"))))
        if watch is not None and group:
            yield watch, document


def findings(project: Project) -> Iterator[Finding]:
    """Yield templates in samples, and fields that are not passed to roles."""
    for _, finding in findings_of_watches(project):
        yield finding


def findings_of_watches(project: Project) -> Iterator[tuple[Watch, Finding]]:
    """Yield the findings with their watches."""
    for watch, document in samples(project):
        spec = nodes.at(document.root, "spec")
        # A project that sets the field to true relied on the text of templates with the Go operator too.
        is_default = watch.mark_unsafe and "markunsafe" not in project.fields_of(watch)
        for finding in _templates(watch, document, spec) if is_default else ():
            yield watch, finding
        for key, _ in nodes.pairs(spec):
            for finding in _reserved(watch, document.source.file, document.source.line(key.start_mark), key.value):
                yield watch, finding
    for watch, file, schema in schemas(project):
        for key in schema.get("properties") or {}:
            for finding in _reserved(watch, file, 0, str(key)):
                yield watch, finding


def schemas(project: Project) -> Iterator[tuple[Watch, str, Mapping[str, Any]]]:
    """Yield the watches whose CRD is in the project, with its file and its schema of `spec`."""
    for watch in project.content.watches:
        if crd := project.crds.get((watch.gvk.group, watch.gvk.kind)):
            yield watch, crd.source.file, _schema(crd.value["spec"], watch.gvk.version)


def types(project: Project) -> dict[str, str]:
    """Return the types of the variables that specs set; of fields that differ between kinds, none."""
    variables: dict[str, str] = {}
    for watch, _, schema in schemas(project):
        name = params.snake_case if watch.snake_case_parameters else str
        for key, kind in core_changes.types_of_fields(schema, name).items():
            variables[key] = kind if variables.get(key, kind) == kind else ""
    return variables


def _schema(spec: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    for entry in spec["versions"]:
        if isinstance(entry, dict) and entry.get("name") == version:
            schema: Any = entry.get("schema") or {}
            for key in ("openAPIV3Schema", "properties", "spec"):
                schema = schema.get(key) if isinstance(schema, dict) else None
            return schema if isinstance(schema, dict) else {}
    return {}


def _templates(watch: Watch, document: Document, spec: yaml.Node | None) -> Iterator[Finding]:
    waiting = [spec] if spec is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.CollectionNode):
            for item in node.value:
                waiting += item if isinstance(item, tuple) else [item]
        elif isinstance(node, yaml.ScalarNode) and any(mark in node.value for mark in _MARKS):
            message = f"a template in the spec of a {watch.gvk.kind}: the role receives its text, not its result"
            fix = (
                f"write the result into the sample; or set `markUnsafe: false` for {watch.gvk.kind} in watches.yaml, "
                "if you trust every user who may write such resources"
            )
            line = document.source.line(node.start_mark)
            yield Finding(document.source.file, line, "template-in-sample", message, fix, is_automatic=True)


def _reserved(watch: Watch, file: str, line: int, key: str) -> Iterator[Finding]:
    name = params.snake_case(key) if watch.snake_case_parameters else key
    if params.is_reserved(name, watch.allow_ansible_variables):
        message = f"spec.{key} of {watch.gvk.kind} becomes the variable {name}, which Ansible interprets: it is dropped"
        fix = f"add `allowAnsibleVariables: [{name}]` to the watch of {watch.gvk.kind}, or rename the field"
        yield Finding(file, line, "ansible-variable", message, fix, is_automatic=True, subject=name)
