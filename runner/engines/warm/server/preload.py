"""Preloading of plugins: common ones of ansible-core with their documentation, and those that earlier runs used.

Owns the list of common plugins, and the choice of a run's plugins that are worth preloading. Only files of installed
Python packages and collections are preloaded, never those beside a role or playbook. A plugin that reports a warning
when it is loaded is unloaded again, so that each run reports it. Import this module only where `model` has loaded
Ansible.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.plugins import loader as loaders
from ansible.utils.display import Display

_CORE = f"{Path(ansible.__file__).parent}{os.sep}"
_WHOLE = ("become", "cache", "callback", "connection", "inventory", "shell", "strategy", "vars")
"""Kinds of plugins that Ansible loads completely in every run."""
_OFTEN = {
    "action": (
        "normal debug set_fact assert fail include_vars command shell template copy file gather_facts package service "
        "set_stats add_host group_by pause uri"
    ),
    "filter": "default b64encode to_json urlsplit",
    "lookup": "env file template items vars dict subelements fileglob first_found pipe url password",
    "test": "defined failed match uri",
}
"""Plugins that many runs load, by kind."""
_JINJA = frozenset({"filter", "test"})


def load_common() -> None:
    """Load the plugins that nearly every run needs."""
    for kind in _WHOLE:
        for path in list(_loader(kind).all(path_only=True)):
            if path.startswith(_CORE):
                _try(kind, Path(path).stem)
    for kind, names in _OFTEN.items():
        for name in names.split():
            _try(kind, name)


def load_modules(names: Iterable[str]) -> None:
    """Load Python modules that earlier runs loaded."""
    for name in names:
        if name in sys.modules:
            continue
        kind, plugin = _plugin_of(name)
        _try(kind, plugin)
        with contextlib.suppress(Exception), undo_if_reported():
            importlib.import_module(name)


def worth_loading(before: Collection[str]) -> list[str]:
    """Return the Python modules that this process has loaded since `before` and that can be preloaded by name."""
    names = []
    for name in sorted(sys.modules.keys() - set(before)):
        spec = getattr(sys.modules[name], "__spec__", None)
        if spec is None or not spec.origin or "." in name[:1]:
            continue
        with contextlib.suppress(Exception):
            # A plugin beside a role may have the name of one of Ansible's plugins. Python would import the latter.
            if _origin(name) == spec.origin:
                names.append(name)
    return names


def _origin(name: str) -> str | None:
    """Return the file that Python finds for the name of a loaded module."""
    module = sys.modules.pop(name)
    try:
        spec = importlib.util.find_spec(name)
    finally:
        sys.modules[name] = module
    return spec.origin if spec else None


def _plugin_of(name: str) -> tuple[str, str]:
    """Return kind and name of the plugin in a Python module; empty for other modules."""
    match name.split("."):
        case ["ansible", "plugins", kind, plugin]:
            return kind, plugin
        case ["ansible_collections", namespace, collection, "plugins", kind, plugin]:
            return kind, f"{namespace}.{collection}.{plugin}"
    return "", ""


def _try(kind: str, name: str) -> None:
    with contextlib.suppress(Exception), undo_if_reported():
        _plugin(kind, name)


def _plugin(kind: str, name: str) -> None:
    loader = _loader(kind)
    if loader is None or not loader.class_name:  # modules have none
        return
    if kind in _JINJA:
        loader.get(name)
    else:
        loader.get(name, class_only=True)


def _loader(kind: str) -> Any:
    """Return a loader of plugins. Ansible's own loader would keep state that is wrong in a run.

    - Of vars plugins: Ansible loads them only if the loader has not searched them yet, and would use a cached class as
      an instance.
    - With a relative folder: the loader would keep the server's working folder in its search path.
    """
    loader = getattr(loaders, f"{kind}_loader", None)
    if loader and (kind == "vars" or not all(map(os.path.isabs, loader.config))):
        return loaders.PluginLoader(loader.class_name, loader.package, loader.config, loader.subdir)
    return loader


@contextlib.contextmanager
def undo_if_reported() -> Iterator[None]:
    """Unload modules loaded in this context if Ansible reports anything: each run must report it itself."""
    before = set(sys.modules)
    reports: list[object] = []
    display: Any = Display()
    config: Any = constants.config
    warnings, deprecated = set(config.WARNINGS), list(config.DEPRECATED)
    shown = [(messages, messages.copy()) for messages in (display._deprecations, display._warns)]  # noqa: SLF001 - no public name
    display.display = lambda *words, **_: reports.append(words)
    for messages, _ in shown:
        messages.clear()  # or what another plugin has reported would not be reported again
    try:
        yield
    finally:
        del display.display
        for messages, before_display in shown:
            messages.clear()
            messages.update(before_display)
        reports += sorted(config.WARNINGS - warnings)
        config.WARNINGS.intersection_update(warnings)
        config.DEPRECATED[:] = deprecated
        if reports:
            for name in sys.modules.keys() - before:
                del sys.modules[name]
