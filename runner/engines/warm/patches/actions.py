"""Known actions, and whether they may run in the playbook's own process.

The path of an action's code identifies it: in ansible-core or in `kubernetes.core`. An action of the same name in a
project is unknown. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
from enum import Enum
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.plugins.loader import action_loader, module_loader

from runner.engines.warm import versions

CORE = f"{Path(ansible.__file__).parent}{os.sep}"
_ON_CONTROLLER = frozenset(
    {
        "assert",
        "debug",
        "fail",
        "import_playbook",
        "import_role",
        "import_tasks",
        "include_role",
        "include_tasks",
        "include_vars",
        "set_fact",
        "set_stats",
        "validate_argument_spec",
    }
)
_INCLUDES = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "ansible.builtin.", "ansible.legacy.")
    for name in ("include_role", "include_tasks")
)
"""Names of dynamic includes, which have no plugin."""
_ON_CONTROLLER_BEFORE_2_21 = frozenset({"add_host", "group_by"})
"""Since ansible-core 2.21 they report to the playbook's process and wait for it."""
_OF_MODULES = frozenset({"command", "copy", "gather_facts", "normal", "package", "service", "shell", "template", "uri"})
"""Actions of ansible-core that run modules, and evaluate no templates afterwards."""
_KUBERNETES = f"{os.sep}ansible_collections{os.sep}kubernetes{os.sep}core{os.sep}plugins{os.sep}action{os.sep}"


class Kind(Enum):
    """Kind of an action."""

    ON_CONTROLLER = "on the controller"
    OF_MODULES = "of modules"
    UNKNOWN = "unknown"


def kind_of(task: Any) -> Kind:
    """Return the kind of a task's action."""
    if not isinstance(task.action, str) or "{" in task.action:
        return Kind.UNKNOWN
    return _kind(task.action, tuple(task.collections or ()))


@functools.cache
def _kind(action: str, collections: tuple[str, ...]) -> Kind:
    name = action.rpartition(".")[2]
    if action in _INCLUDES:
        return Kind.ON_CONTROLLER
    path = _path(action, list(collections) or None)
    if path == _core_path(name) and (
        name in _ON_CONTROLLER or (name in _ON_CONTROLLER_BEFORE_2_21 and versions.CORE < (2, 21))
    ):
        return Kind.ON_CONTROLLER
    if _KUBERNETES in path or path in {_core_path(plugin) for plugin in _OF_MODULES}:
        return Kind.OF_MODULES
    return Kind.UNKNOWN


def _path(action: str, collections: list[str] | None) -> str:
    """Return the file of the action plugin that Ansible would use; empty if that is not easy to determine."""
    module = module_loader.find_plugin_with_context(action, collection_list=collections)
    if module.resolved and module.action_plugin:
        return str(action_loader.find_plugin(module.action_plugin, collection_list=collections) or "")
    if action_loader.has_plugin(action, collection_list=collections):
        return str(action_loader.find_plugin(action, collection_list=collections) or "")
    if action.rpartition(".")[2].split("_")[0] in constants.NETWORK_GROUP_MODULES:
        return ""
    return str(action_loader.find_plugin("ansible.legacy.normal") or "")


def _core_path(name: str) -> str:
    return f"{CORE}plugins{os.sep}action{os.sep}{name}.py"
