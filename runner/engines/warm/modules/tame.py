"""Tame modules: they run one after the other in one process, and share its client of the API server.

The tame lookup runs in the playbook's process, and shares a client there. A module of Kubernetes reads the kubeconfig,
connects, and reads the kinds of the API server, which takes longer than its work. In one process, the pool of clients
of kubernetes.core does this once. Owns the list of tame modules, the choice of calls, and the state that one module
could leave to the next.

Promises: a module finds what it would find in a process of its own, and the clients of equal configurations. The list
has modules whose global state is known. They share a process only if they use the run's own kubeconfig. A module that
fails, or leaves what cannot be removed, is the last one of its process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.agent import process_tree
from runner.engines.warm.modules import module_namespace
from runner.engines.warm.modules.module_namespace import ModuleNamespace
from runner.engines.warm.stamps import Stamp, stamp

_COLLECTIONS = {
    "ansible_collections.kubernetes.core.plugins.": ("k8s", "k8s_info", "k8s_json_patch", "k8s_scale", "k8s_service"),
    "ansible_collections.operator_sdk.util.plugins.": ("k8s_event", "k8s_status", "osdk_metric", "requeue_after"),
}
MODULES = frozenset(f"{prefix}modules.{name}" for prefix, names in _COLLECTIONS.items() for name in names)
"""Python names of the modules."""
LOOKUP = "kubernetes.core.k8s"
"""Full name of the tame lookup."""
_POOL = "ansible_collections.kubernetes.core.plugins.module_utils.k8s.client"
"""Python module with the pool of clients. Its keys contain all that distinguishes their configurations and headers."""
_DISCOVERED = "k8srcp-*.json"
"""Files in the temporary folder with the kinds of the API server. Clients read them once, and write them."""
_ACCESS = frozenset(
    {"api_key", "ca_cert", "cert_file", "client_cert", "client_key", "context", "host", "impersonate_groups"}
    | {"impersonate_user", "key_file", "kubeconfig", "no_proxy", "password", "persist_config", "proxy"}
    | {"proxy_headers", "ssl_ca_cert", "username", "validate_certs", "verify_ssl"}
)
"""Arguments, and their aliases, that select another API server, other credentials or another way."""
_MOST_DESCRIPTORS = 64
_CONTAINERS = (dict, list, set)


def shares(arguments: Mapping[str, Any]) -> bool:
    """Return True if a tame module with these arguments uses the run's own kubeconfig."""
    return all(arguments[name] is None for name in _ACCESS & arguments.keys())


class Clients:
    """The clients that the modules or lookups of this process leave to the next."""

    def __init__(self, pool: dict[str, Any]) -> None:
        self._pool = pool
        self._discovered: list[Stamp | None] = []

    def begin(self) -> None:
        """Drop clients whose kinds another process has read again. For the environment of the next module."""
        if self._pool and _discovered() != self._discovered:
            self._pool.clear()

    def end(self) -> None:
        """Note which kinds the clients have, and remove the configuration that the last module or lookup left."""
        self._discovered = _discovered()
        if client := sys.modules.get("kubernetes.client"):
            client.Configuration.set_default(None)


@functools.cache
def _clients_of_lookups() -> Clients | None:
    """Return the clients of this process; None if the collection has no pool of clients."""
    pool = getattr(sys.modules.get(_POOL), "_pool", None)
    if pool is None:
        return None
    # A fork must not read from the connections of this process.
    os.register_at_fork(after_in_child=pool.clear)
    return Clients(pool)


def look_up(run: Callable[..., Any], need_fork: Callable[[], None], *terms: Any, **options: Any) -> Any:
    """Run the tame lookup. `need_fork` is called if this process should not run it; it may return."""
    clients = _clients_of_lookups() if shares(options) else None
    if clients is None:
        need_fork()
        return run(*terms, **options)
    clients.begin()
    try:
        return run(*terms, **options)
    finally:
        clients.end()


class Between:
    """The change from one module of a process to the next. Create it before the first module."""

    def __init__(self, namespace: ModuleNamespace) -> None:
        self._namespace = namespace
        self._names = frozenset(sys.modules)
        self._modules = {name: sys.modules[name] for name in self._names if module_namespace.is_ours(name)}
        pool: dict[str, Any] = getattr(self._modules.get(_POOL), "_pool", {})
        self._clients = Clients(pool)
        self._recursion = sys.getrecursionlimit, sys.setrecursionlimit, sys.getrecursionlimit()
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        variables: dict[int, Any] = {id(variable): variable for variable in (sys.path, sys.meta_path)}
        objects: dict[int, Any] = {}
        for module in (value for name, value in self._modules.items() if name.startswith(("ansible.", *_COLLECTIONS))):
            variables[id(vars(module))] = vars(module)
            for name, value in vars(module).items():
                if type(value) in _CONTAINERS and not name.startswith("__") and value is not pool:
                    variables[id(value)] = value
                elif module_namespace.is_ours(type(value).__module__) and hasattr(value, "__dict__"):
                    objects[id(value)] = vars(value)
        self._variables = [(live, live.copy()) for live in variables.values()]
        self._objects = [(live, {name: _copy(value) for name, value in live.items()}) for live in objects.values()]

    def begin(self) -> None:
        """Drop outdated clients. For the environment of the next module."""
        self._clients.begin()

    def end(self, code: int) -> bool:
        """Remove what a module left, and return True; or return False, because its process must end."""
        if code or not self._is_removable():
            return False
        finalize: Any = weakref.finalize
        atexit.unregister(finalize._exitfunc)  # noqa: SLF001 - it closes the connections of all clients
        finalize._registered_with_atexit = False  # noqa: SLF001 - or none would be registered again
        with contextlib.suppress(BaseException):  # it is printed
            atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way
        self._clients.end()
        for live, saved in self._variables:
            if live != saved:
                live.clear()
                (live.extend if isinstance(live, list) else live.update)(saved)
        for name in filter(module_namespace.is_ours, sys.modules.keys() - self._names):
            del sys.modules[name]
        sys.modules.update(self._modules)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        sys.getrecursionlimit, sys.setrecursionlimit, limit = self._recursion
        sys.setrecursionlimit(limit)
        warnings.resetwarnings()  # or a warning would be shown once only
        module_namespace.forget_changes(self._namespace)
        return True

    def _is_removable(self) -> bool:
        """Return True if `end` can remove all that a module left."""
        finalize: Any = weakref.finalize
        foreign = (finalizer for finalizer in finalize._registry.values() if finalizer.atexit)  # noqa: SLF001 - as above
        return (
            threading.active_count() == 1
            and not process_tree.has_children()
            and signal.getitimer(signal.ITIMER_REAL) == (0, 0)
            and len(os.listdir("/proc/self/fd")) < _MOST_DESCRIPTORS  # noqa: PTH208 - only their number is needed
            and not getattr(sys.modules.get("kubernetes.config.kube_config"), "_temp_files", None)
            and all(live == saved for live, saved in self._objects)
            and all(str(getattr(finalizer.func, "__module__", "")).startswith("urllib3.") for finalizer in foreign)
        )


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in _CONTAINERS else value


def _discovered() -> list[Stamp | None]:
    return [stamp(str(path)) for path in sorted(Path(tempfile.gettempdir()).glob(_DISCOVERED))]
