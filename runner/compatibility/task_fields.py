"""Readers of tasks as YAML nodes: action, arguments, conditions, and variables that tasks set. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from runner.base.yamlfile import nodes
from runner.compatibility.validation import Task

KEYWORDS = frozenset(
    {
        *("action", "any_errors_fatal", "args", "async", "become", "become_exe", "become_flags", "become_method"),
        *("become_user", "changed_when", "check_mode", "collections", "connection", "debugger", "delay"),
        *("delegate_facts", "delegate_to", "diff", "environment", "failed_when", "gather_facts", "ignore_errors"),
        *("ignore_unreachable", "listen", "local_action", "loop", "loop_control", "module_defaults", "name", "no_log"),
        *("notify", "poll", "port", "register", "remote_user", "retries", "role", "run_once", "tags", "throttle"),
        *("timeout", "until", "vars", "when", "block", "rescue", "always"),
    }
)
"""Keywords of tasks, of blocks, and of entries of `roles`."""
_CONDITIONS = ("when", "failed_when", "changed_when", "until")
_ASSERT = {"assert", "ansible.builtin.assert"}
_SET_FACT = {"set_fact", "ansible.builtin.set_fact"}


def actions(task: Task) -> Iterator[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Yield the name of a task's module, its key, and its arguments."""
    for key, value in nodes.pairs(task.node):
        if key.value in {"action", "local_action"}:
            words = nodes.text(nodes.at(value, "module") or value).split()
            if words:
                yield words[0], key, value
        elif key.value not in KEYWORDS and not key.value.startswith("with_"):
            yield key.value, key, value


def conditions(task: Task) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the conditions of a task, with the keyword or argument that contains them."""
    for key, value in nodes.pairs(task.node):
        if key.value in _CONDITIONS:
            yield from ((key.value, condition) for condition in _scalars(value))
        elif key.value == "loop_control":
            yield from (("break_when", condition) for condition in _scalars(nodes.at(value, "break_when")))
        elif key.value in _ASSERT:
            yield from (("that", condition) for condition in _scalars(nodes.at(value, "that")))


def definitions(task: Task) -> Iterator[tuple[str, yaml.Node | None]]:
    """Yield the variables that a task sets, with their values; None for the result of a module."""
    for key, value in nodes.pairs(task.node):
        if key.value == "register" and isinstance(value, yaml.ScalarNode):
            yield value.value, None
        elif key.value == "vars" or key.value in _SET_FACT:
            yield from ((name.value, definition) for name, definition in nodes.pairs(value))


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    yield from (item for item in items if isinstance(item, yaml.ScalarNode))
