"""What a task that runs in the playbook's own process may touch: code that is known, and values that nobody else has.

A worker's fork protects the playbook's process from plugins that block, leak or misbehave, and from templates that
change the values they are given. Where there is no fork, whatever is not known to be harmless asks for one before it
runs: the task begins again in a worker, or, if a module of it has run already, goes on in one. Owns the list of what is
known. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, MutableSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.executor.task_executor import TaskExecutor
from ansible.playbook.task import Task
from ansible.plugins.loader import connection_loader, filter_loader, lookup_loader, test_loader

from runner.engine.executions import Reason, Way
from runner.engine.warm import task_record, versions
from runner.engine.warm.patches import actions
from runner.engine.warm.patches.actions import Kind

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
    """A task has come to something that must not run in the playbook's process, and can begin again in a worker."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class HandedOver(BaseException):
    """A task goes on in a worker; what is left of it in this process must do nothing more."""


@dataclass
class Inside:
    """A task that runs without a fork."""

    hand_over: Callable[[], None]
    """Forks; returns in the worker, and raises `HandedOver` here."""
    commit: Callable[[], None]
    """Called when the first module runs: the task cannot begin again any more."""
    with_modules: bool
    """Whether it may run modules."""
    committed: bool = False
    left: bool = False
    """Whether it goes on elsewhere."""


_local = threading.local()


def inside() -> Inside | None:
    """Return the task that this thread runs without a fork."""
    task: Inside | None = getattr(_local, "task", None)
    return task


def watching() -> bool:
    """Whether this thread runs a task without a fork."""
    return inside() is not None


@contextlib.contextmanager
def watched(task: Inside) -> Iterator[None]:
    """Run a task without a fork."""
    _local.task = task
    try:
        yield
    finally:
        _local.task = None


def leave() -> None:
    """Stop watching: this process is a worker by now."""
    _local.task = None


def stop_if_left() -> None:
    """Do no more where the task goes on elsewhere, not even clean up: what is there is the worker's."""
    task = inside()
    if task is not None and task.left:
        raise HandedOver


def need_fork(reason: Reason) -> None:
    """Go on only in a worker."""
    stop_if_left()
    task = inside()
    if task is None:
        return
    if not task.committed:
        raise NeedsFork(reason)
    task.hand_over()
    task_record.add(Way.WORKER, reason)


def a_module_runs() -> None:
    """Say that something happens that must not happen twice."""
    task = inside()
    if task is not None and not task.committed:
        task.commit()
        task.committed = True


def is_possible() -> bool:
    """Whether anything can be said about what templates run."""
    return not constants.DEFAULT_JINJA2_EXTENSIONS


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
        task = inside()
        reason = Reason.NONE if task is None else _obstacle(self, task)
        if reason is not Reason.NONE:
            need_fork(reason)
        return validate(self, *args, **kwargs)

    Task.post_validate = post_validate


def _obstacle(task: Any, inside_of: Inside) -> Reason:
    """Return why a task that is not skipped needs a worker; `NONE` if it does not."""
    for given, reason in (
        (task.become, Reason.BECOME),
        (task.async_val, Reason.ASYNC),
        (task.timeout, Reason.TIMEOUT),
    ):
        if given:
            return reason
    kind = actions.kind_of(task)
    if kind is Kind.UNKNOWN:
        return Reason.ACTION
    waits = kind is Kind.OF_MODULES or task.until or task.retries
    return Reason.HOSTS if waits and not inside_of.with_modules else Reason.NONE


def _hook_connections() -> None:
    get: Callable[..., Any] = TaskExecutor._get_connection
    become: Callable[..., Any] = TaskExecutor._get_become

    @functools.wraps(get)
    def get_connection(self: Any, cvars: Any, templar: Any, current_connection: str) -> Any:
        if watching() and not _is_core(connection_loader, current_connection, _CONNECTIONS):
            need_fork(Reason.CONNECTION)
        return get(self, cvars, templar, current_connection)

    @functools.wraps(become)
    def get_become(self: Any, name: str) -> Any:
        need_fork(Reason.BECOME)
        return become(self, name)

    TaskExecutor._get_connection = get_connection
    TaskExecutor._get_become = get_become


def _is_core(loader: Any, name: object, known: frozenset[str]) -> bool:
    if not isinstance(name, str):
        return False
    found = loader.find_plugin_with_context(name).plugin_resolved_path
    return bool(found) and found.startswith(actions.CORE) and Path(found).stem in known


def _hook_lookups() -> None:
    get: Callable[..., Any] = lookup_loader.get

    @functools.wraps(get)
    def get_lookup(name: str, *args: Any, **kwargs: Any) -> Any:
        if watching() and not _is_core(lookup_loader, name, _LOOKUPS):
            need_fork(Reason.PLUGIN)
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
        if watching():
            known.check(name)
        return known.get(name) if watching() else get(name, *args, **kwargs)

    loader.get = get_plugin


class _Known:
    """The filters or tests that are known, without loading those of the project."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._core: Any = None
        self._foreign: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())

    def check(self, name: str) -> None:
        """Ask for a fork where a template would get anything but what is known."""
        collection, _, short = name.removeprefix("ansible.legacy.").rpartition(".")
        known = not collection or collection in _COLLECTIONS
        if not known or short in _FILTERS_TO_FORK or name in self._names_of_project():
            need_fork(Reason.PLUGIN)

    def get(self, name: str) -> Any:
        """Return one that `check` let pass, as its loader would."""
        if self._core is None:
            self._core = _only_core(self._loader)
        plugin = self._core.get(name)
        origin = str(getattr(plugin, "ansible_name", None) or "ansible.builtin.")
        if ".".join(origin.split(".")[:2]) not in _COLLECTIONS:  # it was redirected
            need_fork(Reason.PLUGIN)
        return plugin

    def _names_of_project(self) -> frozenset[str]:
        files = tuple(sorted(path for path in _files(self._loader) if not path.startswith(actions.CORE)))
        if files != self._foreign[0]:
            self._foreign = (files, _names_in_fork(self._loader))
        return self._foreign[1]


def _files(loader: Any) -> Iterator[str]:
    folders = loader._get_paths()
    for folder in folders:
        if not folder.startswith(actions.CORE):
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
        need_fork(Reason.PLUGIN)
        return frozenset()
    return frozenset(json.loads(said))


def _is_from_core(plugin: Any) -> bool:
    return str(getattr(plugin, "_original_path", "")).startswith(actions.CORE)


def _hook_values() -> None:
    """Let no template change a value: others may hold it."""
    for environment in versions.template_environments():
        _hook_access(environment, "getattr")
        _hook_access(environment, "getitem")


def _hook_access(environment: Any, method: str) -> None:
    access: Callable[..., Any] = getattr(environment, method)

    @functools.wraps(access)
    def checked(self: Any, obj: Any, name: Any) -> Any:
        if watching() and isinstance(name, str) and _changes(obj, name):
            need_fork(Reason.CHANGED_VALUE)
        return access(self, obj, name)

    setattr(environment, method, checked)


def _changes(obj: Any, name: str) -> bool:
    """Whether this is a method that changes a value."""
    if name in _CHANGING:
        return isinstance(obj, _CHANGEABLE) and name not in obj
    return name.startswith("set_") and type(obj).__module__.startswith("ansible.")
