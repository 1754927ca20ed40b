"""Restrictions of a task that runs in the playbook's own process: only safe plugins, and no changes of shared values.

A worker's fork protects the playbook's process from plugins that block, leak or misbehave, and from templates that
change their input values. Without a fork, any other code than the safe plugins requires one before it runs: the task
starts again in a worker. After its first module, a task cannot start again. So the templates that follow the module are
checked before it. `safe` has the lists. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.playbook.task import Task
from ansible.plugins.filter import AnsibleJinja2Filter
from ansible.plugins.loader import Jinja2Loader, PluginLoader, filter_loader, test_loader
from ansible.plugins.test import AnsibleJinja2Test
from ansible.utils.collection_loader._collection_finder import _get_collection_metadata as _collection_metadata

from runner.core.engine import processes
from runner.engines.warm import versions
from runner.engines.warm.modules import tame
from runner.engines.warm.patches import actions, safe
from runner.engines.warm.patches.actions import Kind
from runner.engines.warm.stamps import Stamp, is_settled, stamp

_CONNECTIONS = frozenset({"local", "ssh"})
_OF_CORE = "ansible.builtin."
"""Prefix of the names of ansible-core's own plugins."""
_WHOLE_RESULT = "_task.polymorphic_result"
"""Expression of ansible-core for `register` with one name. Others are searched for the project's plugins."""
_NAMES_WITHIN = 10.0
"""Seconds in which a child process loads the project's plugins. Another thread can hold a lock that the child needs."""


class NeedsFork(BaseException):
    """A task needs code that must not run in the playbook's process. It can start again in a worker."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class UnforkedTask:
    """A task that runs without a fork."""

    commit: Callable[[], None]
    """Called when the first module starts: the task cannot start again any more."""
    with_modules: bool
    """True if the task may run modules."""
    committed: bool = False


_local = threading.local()


def unforked_task() -> UnforkedTask | None:
    """Return the task that this thread runs without a fork."""
    task: UnforkedTask | None = getattr(_local, "task", None)
    return task


def is_unforked() -> bool:
    """Return True if this thread runs a task without a fork."""
    return unforked_task() is not None


@contextlib.contextmanager
def run_unforked(task: UnforkedTask) -> Iterator[None]:
    """Run a task without a fork."""
    _local.task = task
    try:
        yield
    finally:
        _local.task = None


def need_fork(reason: str) -> None:
    """Start the task again in a worker. After its first module, it continues here."""
    task = unforked_task()
    if task is not None and not task.committed:
        raise NeedsFork(reason)


def record_module_start() -> None:
    """Record that a module starts. From now on the task must not start again."""
    task = unforked_task()
    if task is not None and not task.committed:
        task.commit()
        task.committed = True


def is_supported() -> bool:
    """Return True if templates can be restricted. Jinja2 extensions could run any code."""
    return not constants.DEFAULT_JINJA2_EXTENSIONS


def install(*, with_clients: bool) -> None:
    """Hook Ansible, so that it requires a fork before it runs unknown code.

    `with_clients`: the lookup of Kubernetes shares a client in this process.
    """
    known = {"filter": _KnownPlugins(filter_loader), "test": _KnownPlugins(test_loader)}
    _hook_actions(known)
    _hook_loading(with_clients=with_clients)
    _hook_filters(known)
    _hook_values()


def _hook_actions(known: Mapping[str, _KnownPlugins]) -> None:
    validate: Callable[..., Any] = Task.post_validate

    @functools.wraps(validate)
    def post_validate(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Ansible calls this if a task is not skipped, before the task has any effect.
        task = unforked_task()
        own = (name for plugins in known.values() for name in plugins.names_of_project())
        if task is not None and not task.committed and (reason := _obstacle(self, task, own)):
            need_fork(reason)
        return validate(self, *args, **kwargs)

    Task.post_validate = post_validate


def _obstacle(task: Any, unforked: UnforkedTask, own: Iterable[str]) -> str:
    """Return why a task that is not skipped needs a worker; empty if it does not. `own`: names of project's plugins."""
    for value, reason in (
        (task.become, "become"),
        (task.async_val, "async"),
        (task.timeout, "timeout"),
    ):
        if value:
            return reason
    kind = actions.kind_of(task)
    if kind is Kind.UNKNOWN:
        return "action"
    waits = kind is Kind.OF_MODULES or task.until or task.retries
    if waits and not unforked.with_modules:
        return "several_hosts"
    is_unsafe = kind is Kind.OF_MODULES and not safe.are_foreseeable(_later_templates(task), own)
    return "plugin" if is_unsafe else ""


def _projections(registered: Any) -> list[str]:
    """Return the expressions that a task registers, instead of its whole result; since ansible-core 2.21."""
    expressions = registered.values() if isinstance(registered, Mapping) else ()
    return [expression for expression in expressions if expression != _WHOLE_RESULT]


def _later_templates(task: Any) -> list[str]:
    """Return the templates of a task that Ansible may evaluate after its first module."""
    values = [task.changed_when, task.failed_when, task.until, _projections(task.register)]
    if task.loop is not None:
        control = task.loop_control
        values += [task.args, task.vars, task.when, task.environment, control.label, control.break_when]
    return [*safe.texts(values)]


def _hook_loading(*, with_clients: bool) -> None:
    """Require a fork before a lookup or a connection that is not known, or any plugin of `become`, is created."""
    known = {"connection": (_CONNECTIONS, "connection"), "lookup": (safe.LOOKUPS, "plugin")}
    get: Callable[..., Any] = PluginLoader.get_with_context

    @functools.wraps(get)
    def get_with_context(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        task = unforked_task()
        is_tame = with_clients and task is not None and task.with_modules and _is_tame(self, name)
        if task is not None and not is_tame:
            if self.type == "become":
                need_fork("become")
            elif self.type in known and not _is_core(self, name, known[self.type][0]):
                need_fork(known[self.type][1])
        pair = get(self, name, *args, **kwargs)
        if is_tame and not kwargs.get("class_only"):
            pair.object.run = functools.partial(tame.look_up, pair.object.run, functools.partial(need_fork, "plugin"))
        return pair

    PluginLoader.get_with_context = get_with_context


def _is_tame(loader: Any, name: object) -> bool:
    if loader.type != "lookup" or not isinstance(name, str) or name.rpartition(".")[2] != "k8s":
        return False
    return bool(loader.find_plugin_with_context(name).resolved_fqcn == tame.LOOKUP)


def _is_core(loader: Any, name: object, known: frozenset[str]) -> bool:
    if not isinstance(name, str):
        return False
    path = loader.find_plugin_with_context(name).plugin_resolved_path
    return bool(path) and path.startswith(actions.CORE) and Path(path).stem in known


def _hook_filters(known: Mapping[str, _KnownPlugins]) -> None:
    for loader in (filter_loader, test_loader):
        _hook_loader(loader, known[loader.type])
    intercept = versions.plugin_intercept()
    item: Callable[..., Any] = intercept.__getitem__

    @functools.wraps(item)
    def getitem(self: Any, key: Any) -> Any:
        if is_unforked() and isinstance(key, str):
            known[versions.intercepted_loader(self).type].check(key)
        return item(self, key)

    intercept.__getitem__ = getitem


def _hook_loader(loader: Any, known: _KnownPlugins) -> None:
    get: Callable[..., Any] = loader.get

    @functools.wraps(get)
    def get_plugin(name: str, *args: Any, **kwargs: Any) -> Any:
        # After its first module, a task continues here with any plugin.
        return known.get(name) if is_unforked() and known.check(name) else get(name, *args, **kwargs)

    loader.get = get_plugin


class _KnownPlugins:
    """Safe filters or tests. The project's own are not loaded."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._core: Any = None
        self._found: dict[str, tuple[Any, str, Stamp | None]] = {}
        """Plugins that were found without a message, each with its folder and the folder's stamp."""
        self._project_folders: tuple[Any, ...] | None = None
        self._project_names: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
        self._unreadable: tuple[str, ...] | None = None
        """Files of the project whose names could not be determined."""

    def check(self, name: str) -> bool:
        """Return True if this is the name of a safe plugin. Otherwise require a fork."""
        name = name.removeprefix("ansible.legacy.")  # with it, Ansible searches the project too
        collection, _, short = name.rpartition(".")
        known = not collection or collection in safe.COLLECTIONS
        if known and short not in safe.FILTERS_TO_FORK and name not in self.names_of_project():
            return True
        need_fork("plugin")
        return False

    def get(self, name: str) -> Any:
        """Return a plugin that `check` accepted, as its loader would."""
        if self._core is None:
            self._core = _only_core(self._loader)
        noted = self._found.get(name)
        if noted is not None and (not noted[1] or stamp(noted[1]) == noted[2]):
            return noted[0]
        plugin = self._core.get(name)
        origin = str(getattr(plugin, "ansible_name", None) or "ansible.builtin.")
        if ".".join(origin.split(".")[:2]) not in safe.COLLECTIONS:  # it was redirected
            need_fork("plugin")
        self._note(name, plugin)
        return plugin

    def _note(self, name: str, plugin: Any) -> None:
        """Note a plugin. Ansible searches all files of a collection for it; the files of ansible-core never change."""
        collection, _, short = name.removeprefix("ansible.legacy.").rpartition(".")
        collection = collection or "ansible.builtin"
        if short in _collection_metadata(collection).get("plugin_routing", {}).get(self._loader.type, {}):
            return  # Ansible may print a message about it each time
        if collection == "ansible.builtin":
            self._found[name] = plugin, "", None
        elif package := sys.modules.get(f"ansible_collections.{collection}.plugins.{self._loader.type}"):
            folder = next(iter(package.__path__))
            now = stamp(folder)
            if is_settled(now):
                self._found[name] = plugin, folder, now

    def names_of_project(self) -> frozenset[str]:
        """Return the names of the project's plugins. Requires a fork if they cannot be determined."""
        paths = [path for path in self._loader._get_paths() if not path.startswith(actions.CORE)]
        stamps = [stamp(path) for path in paths]
        folders = (*paths, *stamps)
        if folders == self._project_folders:
            return self._project_names[1]
        files = tuple(sorted(_files(paths)))
        if files != self._project_names[0]:
            names = None if files == self._unreadable else _names_in_fork(self._loader)
            if names is None:
                self._unreadable = files
                need_fork("plugin")
                return frozenset()
            self._project_names = (files, names)
        self._project_folders = folders if all(now is None or is_settled(now) for now in stamps) else None
        return self._project_names[1]


def _files(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from (entry.path for entry in os.scandir(folder) if entry.name.endswith(".py"))


def _only_core(loader: Any) -> Any:
    """Return a loader of filters or tests that finds no files of the project."""
    kind = AnsibleJinja2Filter if loader is filter_loader else AnsibleJinja2Test
    return Jinja2Loader(loader.class_name, loader.package, [], loader.subdir, kind)


def _names_in_fork(loader: Any) -> frozenset[str] | None:
    """Return the names of the project's plugins; None if they cannot be loaded. A child process loads their files."""
    names = processes.result_of_fork(
        lambda: [plugin.ansible_name for plugin in loader.all() if not plugin.ansible_name.startswith(_OF_CORE)],
        _NAMES_WITHIN,
    )
    return None if names is None else frozenset(name.rpartition(".")[2] for name in names)


def _hook_values() -> None:
    """Require a fork before a template changes a value, which the playbook's process shares."""
    for environment in versions.template_environments():
        _hook_access(environment, "getattr")
        _hook_access(environment, "getitem")


def _hook_access(environment: Any, method: str) -> None:
    access: Callable[..., Any] = getattr(environment, method)

    @functools.wraps(access)
    def checked(self: Any, obj: Any, name: Any) -> Any:
        if is_unforked() and isinstance(name, str) and safe.is_mutating(obj, name):
            need_fork("changed_value")
        return access(self, obj, name)

    setattr(environment, method, checked)
