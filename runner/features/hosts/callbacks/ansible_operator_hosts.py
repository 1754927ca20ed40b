"""Callback that ends a run before its first task if a host of the resource has a name that the project uses.

A user of a resource chooses the names of its hosts, and Ansible merges hosts of the same name. The user's machine would
get the project's variables, or Ansible would connect to an address that the operator did not check. Only Ansible can
read all names, because the project's inventory can be a script or a plugin. This callback reads the project's
inventories once more without the hosts of the resource, and compares the names.

Runs inside ansible-playbook, with every supported ansible-core. Must not import anything of the operator, because
ansible-playbook may have another Python environment.
"""  # noqa: INP001 - Ansible loads it by its path

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: ansible_operator_hosts
type: aggregate
short_description: keeps hosts of a resource and of the project apart
description:
  - Part of the Ansible operator. The operator enables it.
"""

INVENTORY = Path("hosts", "inventory.yml")
"""The inventory of the resource below Ansible's temporary folder; same as in `runner.features.hosts.inventory`."""
REFUSED = 78
"""Exit code of ansible-playbook; same as in `runner.core.engine.events`."""
_OWN_GROUPS = frozenset({"all", "ungrouped", "removed"})
_ENDINGS = ("", ".yml", ".yaml", ".json")


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Ansible's callback plugin."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ansible_operator_hosts"

    def __init__(self) -> None:
        super().__init__()
        self._inventory = Path(os.environ.get("ANSIBLE_LOCAL_TEMP", "/nonexistent")) / INVENTORY
        self._plays: list[Any] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Keep the plays, which can be in several folders."""
        self._plays = playbook.get_plays()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Check the names before the first play."""
        plays, self._plays = self._plays, []
        if not plays or not self._inventory.is_file():
            return
        try:
            problem = next(self._problems(play, plays), "")
        except Exception as error:  # noqa: BLE001 - Ansible would continue without a check
            problem = f"the names of the hosts cannot be compared with those of the project: {error}"
        if problem:
            self._display.display(f"ERROR! {problem}", stderr=True)  # on one line, unlike Display.error
            raise SystemExit(REFUSED)

    def _problems(self, play: Any, plays: list[Any]) -> Iterator[str]:
        manager = play.get_variable_manager()
        merged, loader = manager._inventory, manager._loader  # noqa: SLF001 - there is no other way
        inventory = loader.load_from_file(str(self._inventory))["all"]
        hosts: Mapping[str, Mapping[str, Any]] = inventory["hosts"]
        others = [path for path in merged._sources if Path(path) != self._inventory]  # noqa: SLF001 - the same
        project = _read(loader, others, [name for name, group in inventory["children"].items() if "vars" in group])
        read, read_before = project._inventory.processed_sources, merged._inventory.processed_sources  # noqa: SLF001
        if missing := {str(path) for path in read_before} - {str(path) for path in read} - {str(self._inventory)}:
            yield f"the inventory {', '.join(sorted(missing))} could be read only once, so its names are not known"
        names = {*project.hosts, *project.groups} - _OWN_GROUPS
        folders = {Path(path) if Path(path).is_dir() else Path(path).parent for path in others}
        folders |= {Path(listed._included_path or loader.get_basedir()) for listed in plays}  # noqa: SLF001 - the same
        for name in hosts:
            used = "its inventory" if name in names else _file(name, folders)
            if used:
                yield f"host {name!r} of the resource: the project uses this name in {used}; {_remedy(name, inventory)}"
        yield from _about_groups(inventory["children"], project)
        for name, variables in hosts.items():
            merged_vars = merged.hosts[name].vars
            for variable in sorted(key for key in variables if key.startswith("ansible_")):
                if merged_vars.get(variable) != variables[variable]:
                    yield f"host {name!r} of the resource: the project's inventory sets {variable}; let it set this \
variable only for other hosts"


def _read(loader: Any, sources: list[str], groups: list[str]) -> InventoryManager:
    """Read inventories that can add hosts to groups of the operator, which therefore exist before."""
    project = InventoryManager(loader=loader, sources=sources, parse=False)
    for name in groups:
        project.add_group(name)
    project.parse_sources()
    return project


def _remedy(name: str, inventory: Mapping[str, Any]) -> str:
    if name in inventory["children"]["removed"]["hosts"]:
        return "the host is a removed one: remove its entry from status.hosts"
    return "give the host another name"


def _about_groups(children: Mapping[str, Any], project: InventoryManager) -> Iterator[str]:
    """Yield the problems of groups that a user chose. Groups with variables are those of the operator."""
    for name, group in children.items():
        if name in project.hosts or (name in project.groups and "vars" not in group):
            yield f"group {name!r} of the resource: the project's inventory uses this name; permit another one in \
inventory.groups of watches.yaml"


def _file(name: str, folders: Collection[Path]) -> str:
    """Return the file or folder with variables of a host or group of this name; empty if there is none."""
    paths = (
        folder / kind / f"{name}{end}" for folder in folders for kind in ("host_vars", "group_vars") for end in _ENDINGS
    )
    return next((str(path) for path in paths if os.path.lexists(path)), "")
