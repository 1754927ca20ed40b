"""Program that queries Ansible's own loaders about plugins; `plugins.py` starts it with the environment of runs.

It reads one JSON document: `project` (its folder), `collections` (folders), `folders` (of roles and playbooks, with
their own plugins) and `names`, a list of kind, name and collections. It writes a list: null for a plugin that exists or
whose import fails, or the full name that Ansible searched. To find a filter or a test, Ansible imports files. The
project may be a stranger's, so its own files are not imported: where it has some, such names are unknown, thus null.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins import loader
from ansible.utils.collection_loader._collection_finder import (
    _get_collection_metadata,
)

_LOADERS = {
    "module": (loader.action_loader, loader.module_loader),
    "lookup": (loader.lookup_loader,),
    "filter": (loader.filter_loader,),
    "test": (loader.test_loader,),
}


_IMPORTED = ("filter", "test")
"""Kinds of plugins that Ansible finds by imports."""


def main() -> None:
    """Answer the names on standard input."""
    given = json.load(sys.stdin)
    project = Path(given["project"]).resolve()
    own = [Path(root, "ansible_collections") for root in given["collections"] if _is_below(root, project)]
    with contextlib.redirect_stdout(sys.stderr):
        loader.init_plugin_loader(given["collections"])
        has_own = {kind: _leave_out(kind, project, given["folders"]) for kind in _IMPORTED}
        for folder in given["folders"]:
            for plugins in (*_LOADERS["module"], *_LOADERS["lookup"]):
                plugins.add_directory(str(Path(folder, plugins.subdir)))
        answers = [_searched(*name, own=own, has_own=has_own) for name in given["names"]]
    json.dump(answers, sys.stdout)


def _is_below(folder: str, project: Path) -> bool:
    return Path(folder).resolve().is_relative_to(project)


def _leave_out(kind: str, project: Path, folders: list[str]) -> bool:
    """Leave folders of the project out of a loader's configuration; return whether it has any with plugins."""
    (plugins,) = _LOADERS[kind]
    configured = list(plugins.config)
    plugins.config = [folder for folder in configured if not _is_below(folder, project)]
    beside = any(next(Path(folder, plugins.subdir).glob("*.py"), None) for folder in folders)
    return beside or len(plugins.config) < len(configured)


def _searched(kind: str, name: str, collections: list[str], *, own: list[Path], has_own: dict[str, bool]) -> str | None:
    routing = _get_collection_metadata("ansible.builtin").get("plugin_routing", {})
    entries = routing.get("modules" if kind == "module" else kind, {})
    redirect: str = entries.get(name.removeprefix("ansible.builtin."), {}).get("redirect", name)
    if kind in _IMPORTED:
        namespace, _, rest = redirect.partition(".")
        if any((folder / namespace / rest.partition(".")[0]).is_dir() for folder in own if rest):
            return None
    if any(_exists(kind, plugins, name, collections) for plugins in _LOADERS[kind]):
        return None
    return None if has_own.get(kind) and "." not in name else redirect


def _exists(kind: str, plugins: loader.PluginLoader, name: str, collections: list[str]) -> bool:
    try:
        if kind in {"filter", "test"}:
            return bool(plugins.get_with_context(name).plugin_load_context.resolved)
        return bool(plugins.find_plugin_with_context(name, collection_list=collections or None).resolved)
    except (AnsibleError, KeyError):
        return False
    except Exception as error:  # noqa: BLE001 - a plugin of the project, whose import can raise anything
        sys.stderr.write(f"{name}: {error}\n")
        return True


if __name__ == "__main__":
    main()
