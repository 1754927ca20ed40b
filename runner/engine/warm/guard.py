"""What a task that runs in the playbook's own process may touch: code that is known, and values that nobody else has.

A worker's fork protects the playbook's process from plugins that block, leak or misbehave, and from templates that
change the values they are given. Where there is no fork, whatever is not known to be harmless raises `NeedsFork` before
it runs, and the task is begun again in a worker. Owns the list of what is known. Must be imported only where Ansible is
loaded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, MutableSet
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.executor.task_executor import TaskExecutor
from ansible.playbook.task import Task
from ansible.plugins.loader import action_loader, connection_loader, filter_loader, lookup_loader, test_loader

from runner.engine.warm import versions

_CORE = f"{Path(ansible.__file__).parent}{os.sep}"
_ACTIONS = frozenset(
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
_ACTIONS_BEFORE_2_21 = frozenset({"add_host", "group_by"})
"""They report to the playbook's process since, and wait for it."""
_LOOKUPS = frozenset(
    {
        "config",
        "csvfile",
        "dict",
        "env",
        "file",
        "fileglob",
        "first_found",
        "indexed_items",
        "ini",
        "inventory_hostnames",
        "items",
        "list",
        "nested",
        "sequence",
        "subelements",
        "template",
        "together",
        "unvault",
        "varnames",
        "vars",
    }
)
"""Lookups of ansible-core that only read."""
_COLLECTIONS = frozenset({"ansible.builtin", "ansible.posix", "ansible.utils", "community.general", "kubernetes.core"})
"""Their filters and tests compute, and do nothing else."""
_FILTERS_TO_FORK = frozenset({"attr"})
"""Reach every method of a value."""
_CONNECTIONS = frozenset({"local", "ssh"})
_CHANGING = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "symmetric_difference_update",
        "update",
    }
)
_CHANGEABLE = (MutableMapping, MutableSequence, MutableSet, deque)


class NeedsFork(BaseException):
    """A task has come to something that must not run in the playbook's process. Nothing of it has happened yet."""


_inside = threading.local()


def watching() -> bool:
    """Whether this thread runs a task without a fork."""
    return bool(getattr(_inside, "depth", 0))


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Run a task without a fork."""
    _inside.depth = getattr(_inside, "depth", 0) + 1
    try:
        yield
    finally:
        _inside.depth -= 1


def is_possible() -> bool:
    """Whether anything can be said about what templates run."""
    return not constants.DEFAULT_JINJA2_EXTENSIONS


@functools.cache
def is_known_action(action: str, collections: tuple[str, ...]) -> bool:
    """Whether an action is one of those that never leave the controller, and Ansible's own."""
    name = action.rpartition(".")[2]
    if name not in _ACTIONS and not (name in _ACTIONS_BEFORE_2_21 and versions.CORE < (2, 21)):
        return False
    if action in constants._ACTION_ALL_INCLUDES:
        return True
    path = action_loader.find_plugin(action, collection_list=list(collections) or None)
    return bool(path) and path == f"{_CORE}plugins{os.sep}action{os.sep}{name}.py"


def knows_action(task: Any) -> bool:
    """Whether a task's action is known."""
    collections = tuple(task.collections or ())
    return isinstance(task.action, str) and "{" not in task.action and is_known_action(task.action, collections)


def install() -> None:
    """Have Ansible ask before it runs what is not known."""
    _hook_actions()
    _hook_connections()
    _hook_lookups()
    _hook_filters()
    _hook_values()


def _hook_actions() -> None:
    validate: Callable[..., Any] = Task.post_validate

    @functools.wraps(validate)
    def post_validate(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Ansible comes here once a task is not skipped, and before anything of it happens.
        if watching() and (not knows_action(self) or self.until or self.retries or self.become):
            raise NeedsFork
        return validate(self, *args, **kwargs)

    Task.post_validate = post_validate


def _hook_connections() -> None:
    get: Callable[..., Any] = TaskExecutor._get_connection
    become: Callable[..., Any] = TaskExecutor._get_become

    @functools.wraps(get)
    def get_connection(self: Any, cvars: Any, templar: Any, current_connection: str) -> Any:
        if watching() and not _is_core(connection_loader, current_connection, _CONNECTIONS):
            raise NeedsFork
        return get(self, cvars, templar, current_connection)

    @functools.wraps(become)
    def get_become(self: Any, name: str) -> Any:
        if watching():
            raise NeedsFork
        return become(self, name)

    TaskExecutor._get_connection = get_connection
    TaskExecutor._get_become = get_become


def _is_core(loader: Any, name: object, known: frozenset[str]) -> bool:
    if not isinstance(name, str):
        return False
    found = loader.find_plugin_with_context(name).plugin_resolved_path
    return bool(found) and found.startswith(_CORE) and Path(found).stem in known


def _hook_lookups() -> None:
    get: Callable[..., Any] = lookup_loader.get

    @functools.wraps(get)
    def get_lookup(name: str, *args: Any, **kwargs: Any) -> Any:
        if watching() and not _is_core(lookup_loader, name, _LOOKUPS):
            raise NeedsFork
        return get(name, *args, **kwargs)

    lookup_loader.get = get_lookup


def _hook_filters() -> None:
    known = {"filter": _Known(filter_loader), "test": _Known(test_loader)}
    for loader in (filter_loader, test_loader):
        _hook_loader(loader, known[loader.type])
    intercept = versions.plugin_intercept()
    item: Callable[..., Any] = intercept.__getitem__

    @functools.wraps(item)
    def getitem(self: Any, key: Any) -> Any:
        if watching() and isinstance(key, str):
            known[versions.intercepted_loader(self).type].check(key)
        return item(self, key)

    intercept.__getitem__ = getitem


def _hook_loader(loader: Any, known: _Known) -> None:
    get: Callable[..., Any] = loader.get

    @functools.wraps(get)
    def get_plugin(name: str, *args: Any, **kwargs: Any) -> Any:
        return known.get(name) if watching() else get(name, *args, **kwargs)

    loader.get = get_plugin


class _Known:
    """The filters or tests that are known, without loading those of the project."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._core: Any = None
        self._foreign: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())

    def check(self, name: str) -> None:
        """Raise `NeedsFork` where a template would get anything but what is known."""
        collection, _, short = name.removeprefix("ansible.legacy.").rpartition(".")
        if short in _FILTERS_TO_FORK or name in self._names_of_project():
            raise NeedsFork
        if collection and collection not in _COLLECTIONS:
            raise NeedsFork

    def get(self, name: str) -> Any:
        """Return one that `check` let pass, as its loader would."""
        self.check(name)
        if self._core is None:
            self._core = _only_core(self._loader)
        plugin = self._core.get(name)
        origin = str(getattr(plugin, "ansible_name", None) or "ansible.builtin.")
        if ".".join(origin.split(".")[:2]) not in _COLLECTIONS:  # it was redirected
            raise NeedsFork
        return plugin

    def _names_of_project(self) -> frozenset[str]:
        files = tuple(sorted(path for path in _files(self._loader) if not path.startswith(_CORE)))
        if files != self._foreign[0]:
            self._foreign = (files, _names_in_fork(self._loader))
        return self._foreign[1]


def _files(loader: Any) -> Iterator[str]:
    folders = loader._get_paths()
    for folder in folders:
        if not folder.startswith(_CORE):
            with contextlib.suppress(OSError):
                yield from (entry.path for entry in os.scandir(folder) if entry.name.endswith(".py"))


def _only_core(loader: Any) -> Any:
    """Return a copy of a loader that finds no files of the project."""
    only = _copy(loader)
    only.__dict__.update(_extra_dirs=[], config=[], _paths=None, _cached_non_collection_wrappers={})
    only.__dict__.update(_plugin_path_cache=defaultdict(dict), _searched_paths=set())
    return only


def _copy(loader: Any) -> Any:
    """Copy a loader as it is, without our hook; its own way of being copied is meant for other processes."""
    fresh = object.__new__(type(loader))
    fresh.__dict__.update(loader.__dict__)
    fresh.__dict__.pop("get", None)
    return fresh


def _names_in_fork(loader: Any) -> frozenset[str]:
    """Return the names of the project's plugins; their files are loaded where that does no harm."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            fresh = _copy(loader)
            fresh._ensure_non_collection_wrappers()
            plugins = fresh._cached_non_collection_wrappers
            names = [name for name, plugin in plugins.items() if not _is_from_core(plugin)]
            with os.fdopen(writer, "w", encoding="utf-8") as file:
                json.dump(names, file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(pid, 0)
    if not said:
        raise NeedsFork
    return frozenset(json.loads(said))


def _is_from_core(plugin: Any) -> bool:
    return str(getattr(plugin, "_original_path", "")).startswith(_CORE)


def _hook_values() -> None:
    """Let no template change a value: others may hold it."""
    for environment in versions.template_environments():
        _hook_access(environment, "getattr")
        _hook_access(environment, "getitem")


def _hook_access(environment: Any, method: str) -> None:
    access: Callable[..., Any] = getattr(environment, method)

    @functools.wraps(access)
    def checked(self: Any, obj: Any, name: Any) -> Any:
        if watching() and isinstance(name, str):
            if name in _CHANGING and isinstance(obj, _CHANGEABLE) and name not in obj:
                raise NeedsFork
            if name.startswith("set_") and type(obj).__module__.startswith("ansible."):
                raise NeedsFork
        return access(self, obj, name)

    setattr(environment, method, checked)
