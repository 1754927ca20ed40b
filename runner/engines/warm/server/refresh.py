"""Renewal of the preloaded Ansible for a run: the result equals a new process.

Owns the state that differs between runs, and the state that a new process does not have.

- Ansible itself computes the options that depend on variables of the run again.
- Other values that a module copied from such variables at its import are found by their placeholders.
- A plugin or collection beside a playbook or role has precedence over a preloaded one.
- Ansible still reports which collections it loads.

`mismatch` returns the reason if a run cannot be forked. Import this module only where `model` has loaded Ansible.
"""

from __future__ import annotations

import atexit
import copy
import importlib.util
import inspect
import logging
import os
import secrets
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.config.manager import find_ini_config_file
from ansible.plugins.loader import PluginLoader
from ansible.utils import vars as ansible_vars
from ansible.utils.collection_loader import AnsibleCollectionConfig, _collection_finder
from ansible.utils.display import Display
from ansible.utils.path import cleanup_tmp_file

from runner.core.engine.wire import PER_RUN
from runner.engines.warm.server.model import Model

_OWN = PER_RUN | {"AWX_ISOLATED_DATA_DIR", "ANSIBLE_CACHE_PLUGIN_CONNECTION"}
"""Variables of the operator and of ansible-runner that differ between runs of one environment."""
_READ_LATE = frozenset({"DEFAULT_LOCAL_TMP", "CACHE_PLUGIN_CONNECTION", "DEFAULT_HOST_LIST"})
"""Options that Ansible reads at each use. It copies other options to variables at its import."""
_PATHS = frozenset({"path", "pathlist", "pathspec"})
_TEMPORARY = frozenset({"temppath", "tmppath", "tmp"})
_SHOWS_COLLECTIONS = 4
"""Minimum verbosity at which Ansible reports the collections that it loads."""


class UnfitError(Exception):
    """Ansible cannot be preloaded in this environment."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A variable of a Python module that contains a copy of an environment variable."""

    module: str
    name: str
    variable: str
    """Empty for a copy of the working folder."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """State that is renewed for each run."""

    model: Model
    options: tuple[str, ...]
    captures: tuple[Capture, ...]
    preloaded: frozenset[str]
    """Names of the Python modules of plugins that a new process has not loaded."""

    @classmethod
    def of(cls, model: Model) -> Refresh:
        """Return the state to renew for a model. Raises `UnfitError` if it cannot be renewed."""
        atexit.unregister(cleanup_tmp_file)  # no run may remove the server's folder
        tempfile.tempdir = None
        for handler in logging.root.handlers:
            handler.close()  # a handler opens its file again when it writes
        names = sys.modules.keys() - model.initial_modules
        return cls(
            model=model,
            options=_options(Path(model.scratch)),
            captures=_captures(model),
            preloaded=frozenset(
                name for name in names if name.startswith(("ansible.plugins.", "ansible_collections."))
            ),
        )

    def mismatch(self, environment: Mapping[str, str]) -> str:
        """Return why a run with this environment in this folder cannot be forked; empty if it can."""
        saved = self.model.environment
        differ = {name for name in environment.keys() | saved.keys() if environment.get(name) != saved.get(name)} - _OWN
        if differ:
            return f"runs have other values of {', '.join(sorted(differ))} than the fork server"
        config_file = find_ini_config_file(set())
        if config_file != constants.CONFIG_FILE:
            return f"runs find {config_file or 'no ansible.cfg'}, the fork server {constants.CONFIG_FILE or 'none'}"
        return ""

    def apply(self) -> None:
        """Renew the state. The environment and the standard streams must be those of the run."""
        for name in self.options:
            constants.set_constant(name, constants.config.get_config_value(name, variables=vars(constants)))
        for capture in self.captures:
            value = os.environ.get(capture.variable) if capture.variable else str(Path.cwd())
            setattr(sys.modules[capture.module], capture.name, value)
        warnings.resetwarnings()
        warnings.filters.extend(self.model.warning_filters)  # type: ignore[attr-defined]  # a list at runtime
        Display().__init__()  # a singleton with many references
        self._restore_messages()
        ansible_vars.random_int = f"{secrets.randbelow(2**32):08x}"
        _check_preloaded(set(self.preloaded))
        _reset_collections()

    def _restore_messages(self) -> None:
        """Restore the warnings that Ansible has not shown yet, without those that preloading added."""
        display, config = Display(), constants.config
        for name, shown in self.model.shown_messages.items():
            setattr(display, name, copy.copy(shown))
        pending, deprecated = self.model.pending_warnings
        config.WARNINGS.clear()
        config.WARNINGS.update(pending)
        config.DEPRECATED[:] = deprecated


def _options(scratch: Path) -> tuple[str, ...]:
    """Return the options that depend on variables or the folder of a run, in the order of their definition."""
    definitions: Mapping[str, Any] = constants.config.get_configuration_definitions()
    by_variables = _decided_by_variables(definitions)
    by_folder = _decided_by_folder(definitions, scratch)
    captured = sorted((by_variables | by_folder) - _READ_LATE)
    if captured:
        raise UnfitError(
            f"Ansible's settings {', '.join(captured)} depend on the working folder, which differs from run to run; "
            "write absolute paths in ansible.cfg and in ANSIBLE_ variables"
        )
    return tuple(name for name in definitions if name in by_variables | by_folder)


def _decided_by_variables(definitions: Mapping[str, Any]) -> set[str]:
    options: set[str] = set()
    before = -1
    while len(options) > before:
        before = len(options)
        for name, definition in definitions.items():
            read = {entry["name"] for entry in definition.get("env") or ()}
            default = definition.get("default")
            templated = isinstance(default, str) and "{{" in default and any(option in default for option in options)
            if read & _OWN or templated:
                options.add(name)
    return options


def _decided_by_folder(definitions: Mapping[str, Any], scratch: Path) -> set[str]:
    paths = [name for name, definition in definitions.items() if str(definition.get("type")).lower() in _PATHS]
    temporary = {name for name, definition in definitions.items() if str(definition.get("type")).lower() in _TEMPORARY}
    folder = Path.cwd()
    values = []
    try:
        for place in ("here", "there/deeper"):
            (scratch / place).mkdir(parents=True, exist_ok=True)
            os.chdir(scratch / place)
            values.append({name: constants.config.get_config_value(name, variables=vars(constants)) for name in paths})
    finally:
        os.chdir(folder)
    return temporary | {name for name in paths if values[0][name] != values[1][name]}


def _captures(model: Model) -> tuple[Capture, ...]:
    """Find the placeholders of a run's variables in the imported modules."""
    placeholders = {value: name for name in _OWN if (value := model.environment.get(name))}
    placeholders[str(Path.cwd())] = ""
    captures = []
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if not isinstance(value, str) or model.scratch not in value or module is constants:
                continue
            if value not in placeholders:
                raise UnfitError(f"{module.__name__}.{name} contains a value computed from variables of a run: {value}")
            captures.append(Capture(module.__name__, name, placeholders[value]))
    return tuple(captures)


def _check_preloaded(preloaded: set[str]) -> None:
    """Hook Ansible's loader: load a plugin again if its file is not the preloaded one."""
    load = PluginLoader._load_module_source  # noqa: SLF001 - there is no public name
    signature = inspect.signature(load)

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(self, *args, **kwargs).arguments
        name, path = arguments.get("python_module_name") or arguments["name"], arguments["path"]
        full_name = name if name.startswith(("ansible.", "ansible_collections.")) else f"{self.package}.{name}"
        if full_name in preloaded:
            preloaded.discard(full_name)
            loaded = sys.modules.get(full_name)  # None if the collections were unloaded meanwhile
            if loaded is not None and not _same_file(loaded, path):
                del sys.modules[full_name]
                # Ansible reads the plugin's documentation again.
                plugin = full_name.rpartition(".")[2]
                constants.config._plugins.get(self.type, {}).pop(plugin, None)  # noqa: SLF001 - as above
        return load(self, *args, **kwargs)

    PluginLoader._load_module_source = checked  # noqa: SLF001 - as above


def _same_file(module: Any, path: str) -> bool:
    file = getattr(module, "__file__", None) or ""
    return file == path or os.path.realpath(file) == os.path.realpath(path)


def _reset_collections() -> None:
    """Let Ansible set up its collection finder, but reuse the preloaded one: runs search the same configured paths."""
    finder: Any = _collection_finder._AnsibleCollectionFinder  # noqa: SLF001 - there is no public name
    config: Any = AnsibleCollectionConfig
    saved = config._collection_finder  # noqa: SLF001 - as above
    install, set_playbook_paths = finder._install, finder.set_playbook_paths  # noqa: SLF001 - as above
    if saved is None:
        return

    def keep(fresh: Any) -> None:
        if Display().verbosity < _SHOWS_COLLECTIONS:
            config._collection_finder = saved  # noqa: SLF001 - as above
        else:
            _forget_collections()
            install(fresh)

    def notice(fresh: Any, playbook_paths: Any) -> None:
        paths = [playbook_paths] if isinstance(playbook_paths, str) else playbook_paths
        if any(os.path.isdir(os.path.join(os.fsdecode(path), "collections", "ansible_collections")) for path in paths):  # noqa: PTH112,PTH118 - bytes or text
            _forget_collections()
        set_playbook_paths(fresh, playbook_paths)

    finder._install, finder.set_playbook_paths = keep, notice  # noqa: SLF001 - as above
    config._collection_finder = None  # noqa: SLF001 - as above


def _forget_collections() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    # With this cache, Ansible would not load ansible.builtin here as in a new interpreter; -vvv shows the difference.
    for method in vars(PluginLoader).values():
        if hasattr(method, "cache_clear"):
            method.cache_clear()
