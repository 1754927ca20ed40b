"""Flags, environment and permissions in a project's manifests and Dockerfiles that differ from the Go operator."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from runner.base.config import paths, sources
from runner.base.config.options import Option
from runner.base.config.settings import OPTIONS
from runner.base.yamlfile import nodes
from runner.compatibility.finding import Finding
from runner.sdk.migrate import dockerfile
from runner.sdk.migrate.project import Document, Project
from runner.values.errors import ConfigError
from runner.values.objects import maps

_OPERATORS = {"manager", "operator", "ansible-operator"}
"""Names of the operator's container."""
_OWN_VARIABLES = {"ANSIBLE_GATHERING", "WATCH_NAMESPACE", "OPERATOR_NAME"}
_FLAGS: Mapping[str, Option] = {option.flag: option for option in OPTIONS}
_EVENTS: tuple[str, str, tuple[str, ...]] = ("", "events", ("create", "patch"))


class _Word(NamedTuple):
    """A word of a command line, or a variable as `NAME=value`, and its line."""

    line: int
    text: str


def findings(project: Project) -> Iterator[Finding]:
    """Yield flags and variables that mean something else, and missing permissions."""
    for parsed in project.dockerfiles:
        yield from _flags(parsed.file, [_Word(*word) for word in dockerfile.command_words(parsed)])
        for line, text in dockerfile.environment(parsed):
            yield from _variable(parsed.file, _Word(line, text))
    for document in project.documents:
        file = document.source.file
        for container in _containers(document):
            yield from _flags(file, list(_scalars(document, container, ("command", "args"))))
            for variable in _variables(document, container):
                yield from _variable(file, variable)
        yield from _flags(file, list(_patched_arguments(document)))
    yield from _permissions(project)


def variables(project: Project, folder: Path | None = None) -> dict[str, str]:
    """Return the environment of the operator's container: variables with a literal value, the first of each name.

    Paths of the image are those in `folder`, or in the project. `ANSIBLE_CONFIG` names the ansible.cfg that the
    Dockerfile copies.
    """
    environ: dict[str, str] = {}
    for document in project.documents:
        for container in _containers(document):
            for _, text in _variables(document, container):
                name, _, value = text.partition("=")
                if value and "$(" not in value:
                    environ.setdefault(name, value)
    for parsed in project.dockerfiles:
        for _, text in dockerfile.environment(parsed):
            name, _, value = text.partition("=")
            if "$" not in value:
                environ.setdefault(name, value)
        config = dockerfile.ansible_config(parsed)
        if config and Path(config).is_file():
            environ.setdefault("ANSIBLE_CONFIG", str(Path(config).absolute()))
    return {name: value.replace(str(paths.IMAGE), str(folder or project.root)) for name, value in environ.items()}


def _containers(document: Document) -> Iterator[yaml.Node]:
    """Yield the operator's containers of a Deployment, or of a patch of one."""
    for container in nodes.items(nodes.at(document.root, "spec", "template", "spec", "containers")):
        names = {word.text.partition("=")[0] for word in _variables(document, container)}
        if nodes.text(nodes.at(container, "name")) in _OPERATORS or names & _OWN_VARIABLES:
            yield container


def _scalars(document: Document, container: yaml.Node, keys: tuple[str, ...]) -> Iterator[_Word]:
    for key in keys:
        for item in nodes.items(nodes.at(container, key)):
            if isinstance(item, yaml.ScalarNode):
                yield _Word(document.source.line(item.start_mark), item.value)


def _patched_arguments(document: Document) -> Iterator[_Word]:
    """Yield the flags that a JSON patch of kustomize adds."""
    for operation in nodes.items(document.root):
        value = nodes.at(operation, "value")
        if "/args" in nodes.text(nodes.at(operation, "path")) and isinstance(value, yaml.ScalarNode):
            yield _Word(document.source.line(value.start_mark), value.value)


def _variables(document: Document, container: yaml.Node) -> Iterator[_Word]:
    for variable in nodes.items(nodes.at(container, "env")):
        name = nodes.at(variable, "name")
        if isinstance(name, yaml.ScalarNode):
            text = nodes.text(nodes.at(variable, "value"))
            yield _Word(document.source.line(name.start_mark), f"{name.value}={text}")


def _flags(file: str, words: list[_Word]) -> Iterator[Finding]:
    """Yield problems of flags; other words, such as the program, are ignored."""
    for number, (line, text) in enumerate(words):
        if not text.startswith("--") or text == "--":
            continue
        name, is_joined, value = text.removeprefix("--").partition("=")
        option = _FLAGS.get(name)
        if option is None:
            message = f"unknown flag --{name}: the operator exits with code 2"
            yield Finding(file, line, "flag", message, "delete it, or use a flag of `ansible-operator run --help`")
            continue
        if not is_joined:
            following = words[number + 1].text if number + 1 < len(words) else ""
            value = "true" if option.is_boolean else following
        if "$" not in value:  # a variable of the container
            yield from _of_source(file, line, Namespace(**{option.dest: [value]}), {})


def _variable(file: str, word: _Word) -> Iterator[Finding]:
    name, _, value = word.text.partition("=")
    if value and "$" not in value:
        yield from _of_source(file, word.line, Namespace(), {name: value})


def _of_source(file: str, line: int, flags: Namespace, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what the operator reports for one flag or variable. Rules between flags do not apply."""
    rule = "variable" if environ else "flag"
    try:
        warnings = sources.load(flags, environ).warnings
    except ConfigError as error:
        for message in str(error).splitlines():
            if " requires --" not in message:
                yield Finding(file, line, rule, message, "correct the value: the operator exits with code 2")
        return
    for message in warnings:
        yield Finding(file, line, rule, message, "the deprecated form works; replace it when convenient", "check")


def _permissions(project: Project) -> Iterator[Finding]:
    """Yield permissions that the operator uses and that no Role or ClusterRole of the project grants."""
    rules = [
        rule
        for document in project.documents
        if document.value.get("kind") in ("Role", "ClusterRole")
        for rule in maps(document.value.get("rules"))
    ]
    if not rules:
        return
    for group, resource, verbs in _needed(project):
        missing = ", ".join(verb for verb in verbs if not any(_grants(rule, group, resource, verb) for rule in rules))
        if missing:
            message = f"no role of the manifests grants {missing} of {resource}"
            fix = f"add the rule {{apiGroups: ['{group}'], resources: [{resource}], verbs: [{missing}]}}"
            if resource == "events":
                fix += "; without it, the operator records no Events"
                yield Finding("config/rbac/role.yaml", 0, "permission", message, fix, "check")
            else:
                yield Finding(str(project.watches_file), 0, "permission", message, fix)


def _needed(project: Project) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield group, resource and verbs of the operator's own requests."""
    yield _EVENTS
    for watch in project.content.watches:
        group, crd = watch.gvk.group, project.crds.get((watch.gvk.group, watch.gvk.kind))
        if crd is None:
            continue
        plural = str(crd.value["spec"]["names"].get("plural"))
        yield group, plural, ("get", "list", "watch", *(("patch",) if watch.finalizer else ()))
        if watch.manage_status:
            yield group, f"{plural}/status", ("patch",)


def _grants(rule: Mapping[str, object], group: str, resource: str, verb: str) -> bool:
    def has(key: str, *names: str) -> bool:
        granted = rule.get(key)
        return isinstance(granted, list) and any(name in granted for name in ("*", *names))

    return has("apiGroups", group) and has("resources", resource) and has("verbs", verb)
