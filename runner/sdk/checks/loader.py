"""Program that queries Ansible's own loaders about plugins; `plugins.py` starts it with the environment of runs.

It reads one JSON document: `collections` (folders), `folders` (of roles and playbooks, with their own plugins) and
`names`, a list of kind, name and collections. It writes a list: null for a plugin that exists or whose import fails,
or the full name that Ansible searched.
"""

from __future__ import annotations

import contextlib
import json
import sys

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


def main() -> None:
    """Answer the names on standard input."""
    given = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        loader.init_plugin_loader(given["collections"])
        for folder in given["folders"]:
            loader.add_all_plugin_dirs(folder)
        answers = [_searched(*name) for name in given["names"]]
    json.dump(answers, sys.stdout)


def _searched(kind: str, name: str, collections: list[str]) -> str | None:
    if any(_exists(kind, plugins, name, collections) for plugins in _LOADERS[kind]):
        return None
    routing = _get_collection_metadata("ansible.builtin").get("plugin_routing", {})
    entries = routing.get("modules" if kind == "module" else kind, {})
    redirect: str = entries.get(name.removeprefix("ansible.builtin."), {}).get("redirect", name)
    return redirect


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
