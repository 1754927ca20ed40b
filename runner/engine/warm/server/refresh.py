"""Makes the Ansible that was loaded ahead what one is that was loaded just now, for this run.

Owns what differs between runs, and what a process that has only just begun would not have yet. Promises: settings that
a run's own variables decide are computed anew by Ansible itself; whatever else took such a variable over when it was
imported is found by its stand-in; a plugin or collection that stands beside a playbook or role still wins over one that
was loaded ahead; what Ansible says when it loads a collection is said. `unlike` tells of what it cannot do. Imports
Ansible: import it where `model` has loaded that.
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
from types import CodeType, ModuleType
from typing import Any

from ansible import constants
from ansible.config.manager import find_ini_config_file
from ansible.plugins.loader import PluginLoader, get_all_plugin_loaders
from ansible.utils import vars as ansible_vars
from ansible.utils.collection_loader import AnsibleCollectionConfig, _collection_finder
from ansible.utils.display import Display
from ansible.utils.path import cleanup_tmp_file

from runner.engine.warm.server import preload
from runner.engine.warm.server.model import Model
from runner.engine.warm.stamps import Stamp, stamp
from runner.engine.wire import PER_RUN

_OWN = PER_RUN | {"AWX_ISOLATED_DATA_DIR", "ANSIBLE_CACHE_PLUGIN_CONNECTION"}
"""Variables that differ between two runs of one environment: the operator's, and ansible-runner's."""
_ASKED_LATE = frozenset({"DEFAULT_LOCAL_TMP", "CACHE_PLUGIN_CONNECTION", "DEFAULT_HOST_LIST"})
"""Settings that Ansible looks up whenever it needs them. Others it also keeps elsewhere, from its import on."""
_PATHS = frozenset({"path", "pathlist", "pathspec"})
_TEMPORARY = frozenset({"temppath", "tmppath", "tmp"})
_TELLS_OF_COLLECTIONS = 4
"""From this verbosity on Ansible says which collection it loads."""


class UnfitError(Exception):
    """Nothing can be loaded ahead in this environment; says why."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A variable of a Python module that holds what a variable of the environment held when it was imported."""

    module: str
    name: str
    variable: str
    """Empty: it holds the working folder."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """What has to be made anew."""

    model: Model
    settings: tuple[str, ...]
    captures: tuple[Capture, ...]
    searching: tuple[Any, ...]
    """Loaders of plugins that have noted our working folder as a place to look."""
    ahead: frozenset[str]
    """Plugins, by the names of their Python modules, that a process which has only just begun has not loaded."""
    sources: Mapping[Stamp, CodeType]
    """Plugins that each run loads itself, compiled."""

    @classmethod
    def of(cls, model: Model) -> Refresh:
        """Work it out, once. An `UnfitError` says that what was loaded cannot be made fresh."""
        atexit.unregister(cleanup_tmp_file)  # what the server made, no run shall remove
        tempfile.tempdir = None
        for handler in logging.root.handlers:
            handler.close()  # one that writes a file opens it again when it writes
        sources = {} if constants.DEFAULT_DEBUG else preload.sources()
        names = sys.modules.keys() - model.cold
        return cls(
            model=model,
            settings=_settings(Path(model.scratch)),
            captures=_captures(model),
            searching=_searching(model.scratch),
            ahead=frozenset(name for name in names if name.startswith(("ansible.plugins.", "ansible_collections."))),
            sources=sources,
        )

    def unlike(self, environment: Mapping[str, str]) -> str:
        """Return why the model does not stand for a process with this environment, in this folder; empty if it does."""
        ours = self.model.environment
        differ = {name for name in environment.keys() | ours.keys() if environment.get(name) != ours.get(name)} - _OWN
        if differ:
            return f"runs have other values of {', '.join(sorted(differ))} than the fork server"
        found = find_ini_config_file(set())
        if found != constants.CONFIG_FILE:
            return f"runs find {found or 'no ansible.cfg'}, the fork server {constants.CONFIG_FILE or 'none'}"
        return ""

    def apply(self) -> None:
        """Do it. The environment and the standard streams are this run's already."""
        for name in self.settings:
            constants.set_constant(name, constants.config.get_config_value(name, variables=vars(constants)))
        for capture in self.captures:
            value = os.environ.get(capture.variable) if capture.variable else str(Path.cwd())
            setattr(sys.modules[capture.module], capture.name, value)
        for loader in self.searching:
            loader._paths = None  # noqa: SLF001 - there is no public way to have it look anew
        warnings.resetwarnings()
        warnings.filters.extend(self.model.filters)  # type: ignore[attr-defined]  # a list, whatever its stub says
        Display().__init__()  # there is one, and everybody holds it
        self._say_what_is_to_say()
        ansible_vars.random_int = f"{secrets.randbelow(2**32):08x}"
        ansible_vars.cur_id = 0
        _load_as_if_anew(set(self.ahead), self.sources)
        _find_collections_anew()

    def _say_what_is_to_say(self) -> None:
        """Have Ansible say what it would still say, and no more: loading ahead came across settings, too."""
        display, config = Display(), constants.config
        for name, said in self.model.told.items():
            setattr(display, name, copy.copy(said))
        pending, deprecated = self.model.to_tell
        config.WARNINGS.clear()
        config.WARNINGS.update(pending)
        config.DEPRECATED[:] = deprecated


def _settings(scratch: Path) -> tuple[str, ...]:
    """Return the settings that a run's own variables or its working folder decide, in the order of their definition."""
    definitions: Mapping[str, Any] = constants.config.get_configuration_definitions()
    found = _decided_by_variables(definitions)
    by_folder = _decided_by_folder(definitions, scratch)
    captured = sorted((found | by_folder) - _ASKED_LATE)
    if captured:
        raise UnfitError(
            f"Ansible's settings {', '.join(captured)} depend on the working folder, which differs from run to run; "
            "write absolute paths in ansible.cfg and in ANSIBLE_ variables"
        )
    return tuple(name for name in definitions if name in found | by_folder)


def _decided_by_variables(definitions: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    before = -1
    while len(found) > before:
        before = len(found)
        for name, definition in definitions.items():
            read = {entry["name"] for entry in definition.get("env") or ()}
            default = definition.get("default")
            templated = isinstance(default, str) and "{{" in default and any(each in default for each in found)
            if read & _OWN or templated:
                found.add(name)
    return found


def _decided_by_folder(definitions: Mapping[str, Any], scratch: Path) -> set[str]:
    paths = [name for name, definition in definitions.items() if str(definition.get("type")).lower() in _PATHS]
    temporary = {name for name, definition in definitions.items() if str(definition.get("type")).lower() in _TEMPORARY}
    folder = Path.cwd()
    seen = []
    try:
        for place in ("here", "there/deeper"):
            (scratch / place).mkdir(parents=True, exist_ok=True)
            os.chdir(scratch / place)
            seen.append({name: constants.config.get_config_value(name, variables=vars(constants)) for name in paths})
    finally:
        os.chdir(folder)
    return temporary | {name for name in paths if seen[0][name] != seen[1][name]}


def _captures(model: Model) -> tuple[Capture, ...]:
    """Find the stand-ins of a run's own variables among what was imported."""
    stand_ins = {value: name for name in _OWN if (value := model.environment.get(name))}
    stand_ins[str(Path.cwd())] = ""
    found = []
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if not isinstance(value, str) or model.scratch not in value or module is constants:
                continue
            if value not in stand_ins:
                raise UnfitError(f"{module.__name__}.{name} keeps what it made of a run's own variables: {value}")
            found.append(Capture(module.__name__, name, stand_ins[value]))
    return tuple(found)


def _searching(scratch: str) -> tuple[Any, ...]:
    """Find the loaders that would look for plugins where the server stands, in place of the run's folder."""
    return tuple(
        loader
        for _, loader in get_all_plugin_loaders()
        if any(str(place.path).startswith(scratch) for place in loader._paths or ())  # noqa: SLF001 - as above
    )


def _load_as_if_anew(ahead: set[str], sources: Mapping[Stamp, CodeType]) -> None:
    """Where Ansible loads a plugin from another file than the one that was loaded ahead, let it."""
    load = PluginLoader._load_module_source  # noqa: SLF001 - there is no other way in
    signature = inspect.signature(load)
    compiled = {path for path, *_ in sources}

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        name, path = given.get("python_module_name") or given["name"], given["path"]
        full_name = name if name.startswith(("ansible.", "ansible_collections.")) else f"{self.package}.{name}"
        if full_name in ahead:
            ahead.discard(full_name)
            loaded = sys.modules.get(full_name)  # none, where collections were forgotten meanwhile
            if loaded is not None and not _same_file(loaded, path):
                del sys.modules[full_name]
                _forget_settings(self.type, full_name.rpartition(".")[2])
        if full_name not in sys.modules and path in compiled:
            seen = stamp(path)
            if seen and seen in sources:
                return _execute(full_name, path, sources[seen])
            _forget_settings(self.type, Path(path).stem)
        return load(self, *args, **kwargs)

    PluginLoader._load_module_source = checked  # noqa: SLF001 - as above


def _forget_settings(kind: str, plugin: str) -> None:
    """Have Ansible read anew what a plugin's documentation says of its settings."""
    constants.config._plugins.get(kind, {}).pop(plugin, None)  # noqa: SLF001 - there is no other way in


def _execute(name: str, path: str, code: CodeType) -> ModuleType:
    """Load a module as Ansible does, from what was compiled ahead."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded as {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(code, vars(module))  # noqa: S102 - this is what loading a module means
    except Exception:
        del sys.modules[name]
        raise
    return module


def _same_file(module: Any, path: str) -> bool:
    file = getattr(module, "__file__", None) or ""
    return file == path or os.path.realpath(file) == os.path.realpath(path)


def _find_collections_anew() -> None:
    """Let Ansible set up its finder of collections as always, and keep ours only where that comes to the same."""
    finder: Any = _collection_finder._AnsibleCollectionFinder  # noqa: SLF001 - there is no other way in
    config: Any = AnsibleCollectionConfig
    ours = config._collection_finder  # noqa: SLF001 - as above
    install, set_playbook_paths = finder._install, finder.set_playbook_paths  # noqa: SLF001 - as above
    if ours is None:
        return

    def keep(fresh: Any) -> None:
        same = fresh._n_configured_paths == ours._n_configured_paths  # noqa: SLF001 - as above
        if same and Display().verbosity < _TELLS_OF_COLLECTIONS:
            config._collection_finder = ours  # noqa: SLF001 - as above
        else:
            _forget_collections()
            install(fresh)

    def notice(fresh: Any, playbook_paths: Any) -> None:
        paths = [playbook_paths] if isinstance(playbook_paths, str) else playbook_paths
        if any(os.path.isdir(os.path.join(os.fsdecode(each), "collections", "ansible_collections")) for each in paths):  # noqa: PTH112,PTH118 - bytes or text
            _forget_collections()
        set_playbook_paths(fresh, playbook_paths)

    finder._install, finder.set_playbook_paths = keep, notice  # noqa: SLF001 - as above
    config._collection_finder = None  # noqa: SLF001 - as above


def _forget_collections() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    # What it keeps would keep Ansible from loading its own collection where a run without us does, which -vvv shows.
    kept = getattr(PluginLoader, "_get_builtin_routing_metadata", None)
    if kept is not None:
        kept.cache_clear()
