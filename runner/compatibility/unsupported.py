"""Constructs of roles and playbooks that no supported ansible-core accepts. Pure, apart from names of module files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import yaml

from runner.base.yamlfile import nodes as yaml_nodes
from runner.compatibility import content_nodes as nodes
from runner.compatibility import task_fields
from runner.compatibility.finding import Finding
from runner.compatibility.validation import Task, ValidationResult

_REMOVED = {
    "k8s_facts": "kubernetes.core.k8s_info",
    "k8s_raw": "kubernetes.core.k8s",
    "openshift_raw": "kubernetes.core.k8s",
    "openshift_scale": "kubernetes.core.k8s_scale",
    "k8s_auth": "community.okd.openshift_auth",
    "include": "ansible.builtin.include_tasks",
}
"""Removed modules and their successors."""
_FORMER_COLLECTIONS = {"", "community.kubernetes", "kubernetes.core", "ansible.builtin"}
UTIL = "operator_sdk.util"
OF_UTIL = {"k8s_status", "k8s_event", "requeue_after", "osdk_metric", "fail_terminal"}
"""Modules of operator_sdk.util, which Ansible finds by their short names only with the keyword `collections`."""
_TASKS = {"include", "include_tasks", "import_tasks"}
_ROLES = {"include_role", "import_role"}
_ROLE_FILES = {"vars_from": "vars", "defaults_from": "defaults", "handlers_from": "handlers"}
"""Arguments with files that must be inside of a role's folder."""
_ARGUMENTS = {
    **dict.fromkeys(_TASKS, frozenset({"file", "apply", "_raw_params"})),
    **dict.fromkeys(
        _ROLES,
        frozenset(
            {"name", "role", "tasks_from", *_ROLE_FILES, "apply", "public", "allow_duplicates", "rolespec_validate"}
            | {"rescuable"}
        ),
    ),
}
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def findings(result: ValidationResult) -> Iterator[Finding]:
    """Yield the constructs with which Ansible cannot start a play or a task."""
    for task in result.tasks:
        yield from _vars(task)
        for name, key, arguments in task_fields.actions(task):
            yield from _module(task, name, key)
            yield from _include(task, nodes.action(name), key, arguments)
    for play in result.plays:
        yield from _vars(play)
        for key, _ in yaml_nodes.pairs(play.node):
            if nodes.action(key.value) == "include":
                message = "`include` of a playbook was removed"
                yield _finding(play, key, "removed-module", message, "use ansible.builtin.import_playbook")


def is_reported(module: str) -> bool:
    """Return whether `findings` reports a module by its name."""
    return is_removed(module) or module in OF_UTIL


def is_removed(module: str) -> bool:
    """Return whether a module was removed from Ansible and its collections."""
    collection, _, short = module.rpartition(".")
    return short in _REMOVED and collection in _FORMER_COLLECTIONS


def _finding(task: Task, node: yaml.Node, rule: str, message: str, fix: str, *, is_automatic: bool = False) -> Finding:
    line = task.source.line(node.start_mark)
    return Finding(task.source.file, line, rule, message, fix, is_automatic=is_automatic)


def _vars(task: Task) -> Iterator[Finding]:
    variables = yaml_nodes.at(task.node, "vars")
    if isinstance(variables, yaml.SequenceNode):
        yield _finding(task, variables, "vars-list", "`vars` is a list, which Ansible rejects", "write one mapping")


def _module(task: Task, name: str, key: yaml.ScalarNode) -> Iterator[Finding]:
    short = name.rpartition(".")[2]
    if is_removed(name) and nodes.action(name) != "include":
        automatic = short == "k8s_facts"
        message = f"the module {name} was removed"
        yield _finding(task, key, "removed-module", message, f"use {_REMOVED[short]}", is_automatic=automatic)
    elif name in OF_UTIL and UTIL not in task.collections and not _is_own(task, name):
        message = f"Ansible does not find the module {name} by its short name"
        yield _finding(task, key, "short-name", message, f"use {UTIL}.{name}", is_automatic=True)


def _is_own(task: Task, module: str) -> bool:
    return any((folder / f"{module}.py").is_file() for folder in task.libraries)


def _include(task: Task, action: str, key: yaml.ScalarNode, arguments: yaml.Node) -> Iterator[Finding]:
    known = _ARGUMENTS.get(action)
    if known is None:
        return
    others = [name for name, _ in _given(arguments) if name not in known]
    below = f", with {', '.join(others)} below `vars`" if others else ""
    if action == "include":
        fix = f"use {_REMOVED[action]}{below}"
        yield _finding(task, key, "removed-module", "the module include was removed", fix)
    elif others:
        message = f"{key.value} has no argument {', '.join(others)}"
        yield _finding(task, key, "include-argument", message, f"write {', '.join(others)} below `vars` of the task")
    for name, value in _given(arguments):
        if name in _ROLE_FILES and action in _ROLES and _is_outside(value):
            folder = _ROLE_FILES[name]
            message = f"{name} is {value}, which is outside of the folder {folder} of the role: Ansible rejects it"
            fix = f"move the file into {folder} of the role, or read it with ansible.builtin.include_vars"
            yield _finding(task, key, "role-file", message, fix)


def _given(arguments: yaml.Node) -> list[tuple[str, str]]:
    """Return the arguments of an include: of a mapping, or as `name=value`."""
    if isinstance(arguments, yaml.MappingNode):
        return [(name, str(value.value)) for name, value in nodes.pairs(arguments)]
    words = _TEMPLATE.sub("template", str(arguments.value)).split() if isinstance(arguments, yaml.ScalarNode) else []
    return [(name, value) for name, equals, value in (word.partition("=") for word in words) if equals]


def _is_outside(path: str) -> bool:
    return path.startswith("/") or posixpath.normpath(path).startswith("..")
