"""Cache of found plugins, valid until a folder changes.

Ansible searches the folder of a collection's plugins several times for each task: for the file of an action, a module
and each other plugin. A task file needs two searches for each of its tasks. A search that prints a message, or that
follows a redirection, is repeated. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible import constants
from ansible.plugins.loader import PluginLoader
from ansible.utils.collection_loader import AnsibleCollectionRef

from runner.engines.warm.stamps import Stamp, is_settled, stamp

_ATTEMPTS = frozenset({"redirect_list", "load_attempts"})
"""Lists in the result of a search that contain its attempts. All others contain problems."""
_LEGACY = ("ansible.legacy.", "ansible.builtin.")
"""Prefixes of names that are searched in folders of the project, which Ansible lists once, and of ansible-core."""


def install() -> None:
    """Cache the found plugins."""
    if constants.DEFAULT_DEBUG:  # then Ansible logs each search
        return
    find: Callable[..., Any] = PluginLoader.find_plugin_with_context
    known: dict[tuple[Any, ...], _Found] = {}

    @functools.wraps(find)
    def find_plugin_with_context(
        self: Any,
        name: str,
        mod_type: str = "",
        ignore_deprecated: bool = False,  # noqa: FBT001,FBT002 - as Ansible has it
        check_aliases: bool = False,  # noqa: FBT001,FBT002 - as above
        collection_list: list[str] | None = None,
    ) -> Any:
        key = id(self), name, mod_type, ignore_deprecated, check_aliases, tuple(collection_list or ())
        earlier = known.get(key)
        if earlier is not None and earlier.is_valid(self):
            return _copy(earlier.result)
        result = find(self, name, mod_type, ignore_deprecated, check_aliases, collection_list)
        names = [name] if "." in name or not collection_list else [f"{prefix}.{name}" for prefix in collection_list]
        if _is_plain(result, name, names):
            stamps = _stamps(self, names, result.redirect_list[-1])
            if stamps is not None:
                known[key] = _Found(self, self._plugin_path_cache, stamps, _copy(result))
        return result

    PluginLoader.find_plugin_with_context = find_plugin_with_context


@dataclass(frozen=True, slots=True)
class _Found:
    """A plugin that was found."""

    loader: Any
    paths: Any
    """The loader's own cache of the project's folders, which it replaces when it gets another folder."""
    stamps: tuple[tuple[str, Stamp | None], ...]
    """Folders of collections on which the result depends."""
    result: Any

    def is_valid(self, by: Any) -> bool:
        """Return True if the loader would find the same."""
        return (
            self.loader is by
            and self.paths is by._plugin_path_cache
            and all(stamp(folder) == then for folder, then in self.stamps)
        )


def _copy(result: Any) -> Any:
    """Copy the result of a search, which a caller may change."""
    fresh = object.__new__(type(result))
    fresh.__dict__.update({name: value[:] if type(value) is list else value for name, value in vars(result).items()})
    return fresh


def _is_plain(result: Any, name: str, names: list[str]) -> bool:
    """Return True if a plugin was found without a message and under a requested name."""
    path = result.plugin_resolved_path
    return bool(
        result.resolved
        and path
        and not result.deprecated
        and not os.path.basename(path).startswith("_")  # noqa: PTH119 - strings
        and set(result.redirect_list) <= {name, *names}
        and not any(value for key, value in vars(result).items() if type(value) is list and key not in _ATTEMPTS)
    )


def _stamps(by: Any, names: list[str], resolved: str) -> tuple[tuple[str, Stamp | None], ...] | None:
    """Return the stamps of the folders of the collections that were searched; None if they cannot be stamped."""
    stamps: list[tuple[str, Stamp | None]] = []
    for name in names:
        if not name.startswith(_LEGACY) and AnsibleCollectionRef.is_valid_fqcr(name):
            kind = AnsibleCollectionRef.legacy_plugin_dir_to_plugin_type(by.subdir)
            reference = AnsibleCollectionRef.from_fqcr(name, kind)
            package = sys.modules.get(reference.n_python_package_name)
            root = sys.modules.get(reference.n_python_collection_package_name)
            if package is not None:
                folders = [os.path.dirname(package.__file__ or "")]  # noqa: PTH120 - strings
            elif root is not None:
                folders = [folder for path in root.__path__ for folder in (path, f"{path}/plugins")]
            else:
                return None
            stamps += [(folder, stamp(folder)) for folder in folders]
        if name == resolved:
            break
    return tuple(stamps) if all(now is None or is_settled(now) for _, now in stamps) else None
