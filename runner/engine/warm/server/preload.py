"""What is loaded before a run asks for it: plugins of ansible-core with their documentation, and what runs needed.

Owns which plugins of ansible-core every run needs, and what of a run is worth loading ahead. Promises: only what stands
where Python or Ansible's collections are installed is loaded ahead, never what stands beside a role or a playbook; what
Ansible would say on loading is not lost, because what says anything is unloaded again. Imports Ansible: import it where
`model` has loaded that.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import ansible
from ansible import constants
from ansible.plugins import loader as loaders
from ansible.utils.display import Display

from runner.engine.warm import versions
from runner.engine.warm.stamps import Stamp, stamp

_CORE = f"{Path(ansible.__file__).parent}{os.sep}"
_WHOLE = ("become", "cache", "callback", "connection", "inventory", "shell", "strategy", "vars")
"""Kinds of which Ansible looks at every plugin that it has, in every run."""
_OFTEN = {
    "action": (
        "normal debug set_fact assert fail include_vars command shell template copy file gather_facts package service "
        "set_stats add_host group_by pause uri"
    ),
    "filter": "default b64encode to_json urlsplit",
    "lookup": "env file template items vars dict subelements fileglob first_found pipe url password",
    "test": "defined failed match uri",
}
"""By kind, plugins that many runs load."""
_JINJA = frozenset({"filter", "test"})


def needed() -> None:
    """Load what nearly every run needs."""
    versions.look_up_result_fields()
    for kind in _WHOLE:
        for path in list(_loader(kind).all(path_only=True)):
            if path.startswith(_CORE):
                _try(kind, Path(path).stem)
    for kind, names in _OFTEN.items():
        for name in names.split():
            _try(kind, name)


def again(names: Iterable[str]) -> None:
    """Load Python modules that runs have loaded."""
    for name in names:
        if name in sys.modules:
            continue
        kind, plugin = _plugin_of(name)
        _try(kind, plugin)
        with contextlib.suppress(Exception), _kept_only_if_silent():
            importlib.import_module(name)


def sources() -> dict[Stamp, CodeType]:
    """Compile the plugins that stand where a setting says, and read their documentation.

    They may do anything when they are loaded, so each run loads them itself.
    """
    found = {}
    for loader in vars(loaders).values():
        if not isinstance(loader, loaders.PluginLoader) or not loader.class_name:
            continue
        for path in (path for folder in loader.config or () for path in sorted(Path(folder).glob("*.py"))):
            with contextlib.suppress(Exception), _kept_only_if_silent():
                seen = stamp(str(path))
                tree = ast.parse(path.read_bytes(), str(path))
                if seen:  # from before it was read: what is written meanwhile makes it another file
                    found[seen] = compile(tree, str(path), "exec", dont_inherit=True)
                described = SimpleNamespace(DOCUMENTATION=_constant(tree, "DOCUMENTATION"))
                loader._load_config_defs(path.stem, described, str(path))  # noqa: SLF001 - there is no other way in
    return found


def _constant(tree: ast.Module, name: str) -> str:
    """Return the text that a module assigns to a name; empty if none."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=str(text))) if found == name:
                return text
    return ""


def worth_loading(before: Collection[str]) -> list[str]:
    """Return what this process has loaded beyond `before`, and another could load ahead by its name alone."""
    names = sorted(sys.modules.keys() - set(before))
    found = []
    for name in names:
        spec = getattr(sys.modules[name], "__spec__", None)
        if spec is None or not spec.origin or "." in name[:1]:
            continue
        with contextlib.suppress(Exception):
            # A plugin beside a role may bear the name of one of Ansible's own; Python itself would find the latter.
            if _origin(name) == spec.origin:
                found.append(name)
    return found


def _origin(name: str) -> str | None:
    """Return where Python itself finds a module that is loaded."""
    kept = sys.modules.pop(name)
    try:
        spec = importlib.util.find_spec(name)
    finally:
        sys.modules[name] = kept
    return spec.origin if spec else None


def _plugin_of(name: str) -> tuple[str, str]:
    """Return kind and name of the plugin that a Python module holds; empty for other modules."""
    match name.split("."):
        case ["ansible", "plugins", kind, plugin]:
            return kind, plugin
        case ["ansible_collections", namespace, collection, "plugins", kind, plugin]:
            return kind, f"{namespace}.{collection}.{plugin}"
    return "", ""


def _try(kind: str, name: str) -> None:
    with contextlib.suppress(Exception), _kept_only_if_silent():
        _plugin(kind, name)


def _plugin(kind: str, name: str) -> None:
    loader = _loader(kind)
    if loader is None or not loader.class_name:  # modules have none
        return
    if kind in _JINJA:
        loader.get(name)
        return
    loader.get(name, class_only=True)
    if kind == "vars":
        # Ansible looks at these to know whether it has been here before, and at the class as if it were an instance.
        loader._clear_caches()  # noqa: SLF001 - there is no public name
        loader._paths, loader._plugin_instance_cache = None, {}  # noqa: SLF001 - as above


def _loader(kind: str) -> Any:
    return getattr(loaders, f"{kind}_loader", None)


@contextlib.contextmanager
def _kept_only_if_silent() -> Iterator[None]:
    """Unload again what was loaded within, if Ansible said anything about it: each run has to hear that itself."""
    before = set(sys.modules)
    said: list[object] = []
    display: Any = Display()
    config: Any = constants.config
    warnings, deprecated = set(config.WARNINGS), list(config.DEPRECATED)
    display.display = lambda *words, **_: said.append(words)
    try:
        yield
    finally:
        del display.display
        said += sorted(config.WARNINGS - warnings)
        config.WARNINGS.intersection_update(warnings)
        config.DEPRECATED[:] = deprecated
        if said:
            for name in sys.modules.keys() - before:
                del sys.modules[name]
