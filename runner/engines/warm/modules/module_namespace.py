"""Namespace of Python modules for Ansible modules, preloaded and separate from the controller's.

A module in a new interpreter imports `ansible.module_utils` and its collection's module_utils from its payload. That
interpreter was never a controller, so `ansible.module_utils` behaves differently in it. For this reason
`ModuleNamespace` is a second set of these Python modules, imported apart from the controller's. A forked module uses it
instead. Other packages that they import, such as the Kubernetes client, are shared with the controller.

Owns `sys.modules` during the exchange, and the other interpreter state that the controller changed. Must not import
anything of Ansible. `payload` resolves the files of a module.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.machinery
import importlib.util
import locale
import logging
import signal
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from runner.engines.warm.modules.payload import Entry, Payload, digest_of

_OURS = ("ansible", "ansible_collections")
_DEPRECATOR = "ansible.module_utils._internal._deprecator"

Codes: TypeAlias = Mapping[tuple[str, bytes], CodeType]
"""Compiled code by path and digest, because a file can change."""


def is_ours(name: str) -> bool:
    """Return True if a Python module exists in both sets."""
    return name.partition(".")[0] in _OURS


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that starts to run a module in the environment of runs. A fork copies its properties."""

    path: tuple[str, ...]
    """`sys.path` of the interpreter."""
    encodings: tuple[tuple[str, str], ...]
    """Encoding and error handler of each standard stream."""
    show: Callable[[Sequence[str], Mapping[str, str]], None]
    """Sets the command line and the environment that other processes read from `/proc`."""


@dataclass(frozen=True, slots=True)
class ModuleNamespace:
    """Preloaded Python modules for Ansible modules. Fork it; do not change it."""

    modules: Mapping[str, ModuleType]
    entries: Mapping[str, Entry]
    """The source of each of `modules`."""
    codes: Codes
    """Compiled modules that run as `__main__`."""
    path: tuple[str, ...]
    """`sys.path` of an interpreter that starts for a module."""
    shared: frozenset[str]
    """Other imported Python modules."""
    filters: tuple[Any, ...]
    """`warnings.filters` after the imports."""
    finders: tuple[Any, ...]
    """Finders that the imports added to `sys.meta_path` (for example by `six`)."""
    listings: Mapping[str, Any]
    """Finders of the folders that the imports searched. Each lists its folder again when that has changed."""

    def covers(self, payload: Payload) -> bool:
        """Return True if all entries that the payload and the namespace both contain are equal."""
        return all(
            self.entries[name].digest == entry.digest for name, entry in payload.entries.items() if name in self.entries
        )


def build(
    payloads: Iterable[Payload], skip: frozenset[str], path: Iterable[str], imports: Iterable[str]
) -> ModuleNamespace:
    """Import the content of these payloads, except the modules themselves and the names in `skip`.

    A failed import is skipped: a module that needs it fails by itself, as in a new interpreter. If two payloads contain
    different entries of one name, the first is used.
    """
    entries: dict[str, Entry] = {}
    codes: dict[tuple[str, bytes], CodeType] = {}
    for payload in payloads:
        for name, entry in payload.entries.items():
            entries.setdefault(name, entry)
        main = payload.entries[payload.name]
        with contextlib.suppress(SyntaxError, ValueError, OSError):
            source = main.read()
            codes[main.path, digest_of(source)] = compile(source, main.path, "exec", dont_inherit=True)
    mains = {payload.name for payload in payloads}
    with _aside(path):
        before = list(sys.meta_path)
        ours = Finder(entries, codes, {})
        sys.meta_path.insert(0, ours)
        for name in (*imports, *(name for name in entries if name not in mains)):
            if name not in skip:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        modules = {name: module for name, module in sys.modules.items() if is_ours(name)}
        shared = frozenset(name for name in sys.modules if not is_ours(name))
        filters = tuple(warnings.filters)
        finders = tuple(finder for finder in sys.meta_path if finder is not ours and finder not in before)
        listings = {path: finder for path, finder in sys.path_importer_cache.items() if finder is not None}
    known = {name: entries[name] for name in modules if name in entries}
    return ModuleNamespace(modules, known, codes, tuple(path), shared, filters, finders, listings)


@contextlib.contextmanager
def _aside(path: Iterable[str]) -> Iterator[None]:
    """Remove the controller's modules and finders, and restore them at the end."""
    modules = {name: sys.modules.pop(name) for name in list(sys.modules) if is_ours(name)}
    meta_path, path_hooks, own_path = list(sys.meta_path), list(sys.path_hooks), list(sys.path)
    filters = list(warnings.filters)
    _forget_controllers_finders()
    sys.path[:] = path
    try:
        yield
    finally:
        for name in [name for name in sys.modules if is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(modules)
        sys.meta_path[:], sys.path_hooks[:], sys.path[:] = meta_path, path_hooks, own_path
        sys.path_importer_cache.clear()
        warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever its stub says
        importlib.invalidate_caches()


def _forget_controllers_finders() -> None:
    sys.meta_path[:] = [finder for finder in sys.meta_path if not is_ours(_home(finder))]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if not is_ours(_home(hook))]
    sys.path_importer_cache.clear()


def _home(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or type(thing).__module__)


class Finder:
    """Finder of the content of a payload. It hides all other modules of Ansible, as if only the payload existed."""

    def __init__(self, entries: Mapping[str, Entry], codes: Codes, archives: Mapping[str, str]) -> None:
        """Create a finder. `archives` maps names of modules to the archive that they appear to be loaded from."""
        self._entries = entries
        self._codes = codes
        self._archives = archives

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module (`importlib.abc.MetaPathFinder`)."""
        del path, target
        entry = self._entries.get(name)
        if entry is None:
            if name.startswith("ansible_collections."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return None
        archive = self._archives.get(name)
        origin = f"{archive}/{name.replace('.', '/')}.py" if archive else entry.path
        spec = importlib.machinery.ModuleSpec(name, _Loader(name, entry, self._codes), origin=origin)
        spec.has_location = True
        if entry.is_package:
            spec.submodule_search_locations = list(entry.folders)
        return spec

    def invalidate_caches(self) -> None:
        """Do nothing: there is no cache."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Loader of one entry, from memory if it has no file."""

    def __init__(self, name: str, entry: Entry, codes: Codes) -> None:
        super().__init__(name, entry.path)
        self._entry = entry
        self._codes = codes

    def is_package(self, fullname: str) -> bool:
        del fullname
        return self._entry.is_package

    def get_code(self, fullname: str) -> CodeType | None:
        known = self._codes.get((self._entry.path, self._entry.digest))
        if known is not None:
            return known
        if self._entry.source is not None:
            return compile(self._entry.source, self._entry.path, "exec", dont_inherit=True)
        return super().get_code(fullname)

    def get_data(self, path: str) -> bytes:
        if self._entry.source is not None and path == self._entry.path:
            return self._entry.source
        return super().get_data(path)

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Do nothing: a module in a new interpreter writes no bytecode either."""


def enter(namespace: ModuleNamespace) -> None:
    """Change this forked process into one that never was a controller. It is not reversible."""
    for name in [name for name in sys.modules if is_ours(name)]:
        del sys.modules[name]
    sys.modules.update(namespace.modules)
    _forget_controllers_finders()
    sys.meta_path += namespace.finders
    sys.path[:] = namespace.path
    sys.path_importer_cache.update(namespace.listings)
    forget_changes(namespace)
    _forget_handlers()


def forget_changes(namespace: ModuleNamespace) -> None:
    """Restore the state of a new interpreter that code can change while it runs."""
    warnings.filters[:] = namespace.filters  # type: ignore[index]  # a list, whatever its stub says
    locale.setlocale(locale.LC_ALL, "C")
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    tempfile.tempdir = None


def _forget_handlers() -> None:
    """Remove all exit handlers, and reset signal handlers to those of a new interpreter."""
    atexit._clear()  # noqa: SLF001 - there is no other way
    finalize: Any = weakref.finalize
    finalize._registry.clear()  # noqa: SLF001 - they were to be run by the handler that is gone
    finalize._registered_with_atexit = False  # noqa: SLF001 - or none would be registered again
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def take(namespace: ModuleNamespace, payload: Payload, archive: str) -> None:
    """Load the payload into this process after `enter`. Entries that differ from the namespace are loaded again.

    `archive` is the path that the payload would have.
    """
    entries = payload.entries
    if namespace.covers(payload):
        gone = [name for name, entry in namespace.entries.items() if name not in entries and not entry.is_builtin]
    else:
        gone = list(namespace.modules)
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in namespace.finders]
    for name in gone:
        sys.modules.pop(name, None)
    sys.path.insert(0, archive)
    sys.meta_path.insert(0, Finder(entries, namespace.codes, {payload.name: archive}))
    if _DEPRECATOR in entries:
        with contextlib.suppress(ImportError):  # the module reports it
            _name_files(importlib.import_module(_DEPRECATOR), entries)


def _name_files(deprecator: Any, entries: Mapping[str, Entry]) -> None:
    """Let Ansible recognize files by the place that they would have in the archive; since ansible-core 2.19.

    It names the module or library that deprecates something by the file of the caller.
    """
    root = deprecator._ANSIBLE_MODULE_BASE_PATH.parent  # noqa: SLF001 - there is no public name
    named = deprecator._path_as_core_plugininfo  # noqa: SLF001 - as above
    places = {entry.path: f"{root}/{name.replace('.', '/')}.py" for name, entry in entries.items()}
    deprecator._path_as_core_plugininfo = lambda path: named(places.get(path, path))  # noqa: SLF001 - as above
