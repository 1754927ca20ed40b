"""The shortcuts of the warm engine inside the playbook's process, each with a name that turns it off.

`prepare` belongs into the fork server, once Ansible is loaded; `install` into each playbook's process, before
its main function. Each shortcut imports what it needs when it is installed, so that a symbol that a release of
ansible-core moves disables that shortcut alone. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from runner.engines.warm import versions
from runner.engines.warm.messages import Load

if TYPE_CHECKING:
    from runner.engines.warm.modules.module_namespace import Interpreter
    from runner.engines.warm.modules.preimport import Preimported, Resolution
    from runner.engines.warm.patches import templates

NAMES = {
    "modules": "Modules on local connections run in a fork, not in a new interpreter.",
    "clients": "Modules of Kubernetes share a client in one fork, and lookups one in the playbook's process.",
    "commands": "Temporary folders are made and removed without a shell.",
    "tasks": "Tasks that never leave the controller, or are skipped, need no worker's process.",
    "actions": "Where a play has one host, actions that run modules need no worker's process either.",
    "events": "What events hold goes to the supervisor through a socket, and what they say in one write for each.",
    "copies": "Deep copies of variables share strings and numbers, which never change.",
    "facts": "Facts are processed after a change only, and an unchanged file of them gets a new time only.",
    "fields": "Attributes of tasks are copied and validated without asking each time what holds for all of a class.",
    "listings": "Plugins of collections are searched again only when something was added to their folders.",
    "templates": "Templates of the watched roles, and those of earlier runs, are compiled in the server, once.",
    "values": "Values that need no template, wrapper or observer are read without the checks for them.",
    "sharing": "Memory of the fork server is laid out so that runs share it, and copy less of it.",
}
"""Each shortcut with its effect."""

_MODULES = {"events": "event_socket", "facts": "fact_cache"}
"""Modules in this package whose names are not those of the shortcuts."""
_OURS = str(__package__).rpartition(".")[0].replace(".", "/") + "/"
LEARNED = "ANSIBLE_OPERATOR_LEARNED"
"""Names a file that takes what modules imported beyond what was there."""
Resolve: TypeAlias = "Callable[[], Resolution]"
"""Waits until the modules are resolved."""


@dataclass(frozen=True, slots=True)
class PreparedShortcuts:
    """The state that the server prepares for shortcuts."""

    modules: Preimported | None
    templates: templates.CompiledTemplates | None
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why something could not be made ready, by the shortcut's name."""


class InstallError(Exception):
    """A shortcut cannot be installed. Some of its hooks may be in place, so this process must not run a playbook."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the shortcut {name} cannot be installed: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Target:
    """The arguments of an installation."""

    off: frozenset[str]
    made: PreparedShortcuts
    event_descriptor: int


def resolve(modules: frozenset[str], folder: Path) -> Resolve:
    """Begin to resolve modules; return what `prepare` needs. The process must have a single thread."""
    try:
        begun: Resolve = _preimport().begin(modules, folder)
    except Exception as error:  # noqa: BLE001 - `prepare` reports it
        return functools.partial(_fail, error)
    return begun


def _fail(error: Exception) -> NoReturn:
    raise error


def prepare(request: Load, interpreter: Interpreter, resolved: Resolve) -> PreparedShortcuts:
    """Make ready what runs need of this."""
    problems: dict[str, str] = {}

    def attempt(name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - the self-test reports it, and the shortcut is disabled
            problems[name] = f"{type(error).__name__}: {error}"
        return None

    compiled = attempt("templates", lambda: _patch("templates").precompile(request.templates))
    made = attempt("modules", lambda: _preimport().make(resolved(), request.imports, interpreter))
    return PreparedShortcuts(made, compiled, problems)


def load(off: frozenset[str]) -> None:
    """Import the code of all shortcuts but those that are off, so that runs need not."""
    for name in sorted(_INSTALLERS.keys() - off):
        with contextlib.suppress(Exception):  # the self-test reports it, because the installation fails too
            _patch(name)


def _patch(name: str) -> Any:
    """Import the module of a shortcut."""
    return import_module(f"runner.engines.warm.patches.{_MODULES.get(name, name)}")


def _preimport() -> Any:
    return import_module("runner.engines.warm.modules.preimport")


def install(off: frozenset[str], made: PreparedShortcuts, event_descriptor: int) -> Mapping[Any, str]:
    """Install every shortcut but those that are off; return where the templates that this run compiles are noted.

    `event_descriptor` is the number of a socket to the supervisor. Raises `InstallError`.
    """
    target = _Target(off, made, event_descriptor)
    noted: Mapping[Any, str] = {}
    hide_frames()
    for name, install_one in _INSTALLERS.items():
        try:
            result = install_one(target, name not in off)
        except Exception as error:
            raise InstallError(name, f"{type(error).__name__}: {error}") from error
        if result is not None:
            noted = result
    return noted


def hide_frames() -> None:
    """Remove this package's frames from every traceback that this process and its forks format from now on."""
    walk: Any = traceback._walk_tb_with_full_positions  # type: ignore[attr-defined]  # there is no public name

    def walk_others(frames: TracebackType | None) -> Iterator[Any]:
        return (entry for entry in walk(frames) if _OURS not in entry[0].f_code.co_filename)

    traceback._walk_tb_with_full_positions = walk_others  # type: ignore[attr-defined]


def _install_modules(target: _Target, is_on: bool) -> None:  # noqa: FBT001 - as all of these
    if not is_on:
        return
    modules = _patch("modules")
    made = target.made.modules
    if made is None:
        raise RuntimeError(target.made.problems.get("modules", "nothing was made ready for modules"))
    from runner.engines.warm.modules import module_namespace, module_process, tame  # noqa: PLC0415 - see above
    from runner.engines.warm.modules.payload import Payloads  # noqa: PLC0415 - as above
    from runner.engines.warm.modules.zygote import Zygote  # noqa: PLC0415 - as above

    payloads = Payloads(made.payloads)
    context = module_process.ModuleContext(
        made.namespace, {(payload.name, payload.path): payload for payload in payloads}, made.interpreter
    )
    session = versions.worker_session({})

    def enter() -> None:
        session.begin()
        if versions.TAGGED:  # workers handle these since, so what they start does not ignore what the operator may
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        module_namespace.enter(made.namespace)

    zygote = Zygote.start(enter, module_process.runner(context))
    atexit.register(zygote.close)
    can_share = frozenset(
        key
        for key, payload in context.payloads.items()
        if payload.name in tame.MODULES and "clients" not in target.off and made.namespace.covers(payload)
    )
    learned = os.environ.get(LEARNED, "")
    modules.install(modules.Modules(zygote, session, payloads, context.payloads, can_share, made.read, learned))


def _install_tasks(target: _Target, is_on: bool) -> None:  # noqa: FBT001 - as above
    if is_on:
        with_modules = not target.off & {"actions", "commands", "modules"}
        _patch("tasks").install(with_modules=with_modules, with_clients="clients" not in target.off)


def _install_events(target: _Target, is_on: bool) -> None:  # noqa: FBT001 - as above
    if is_on:
        _patch("events").install(target.event_descriptor)
    else:
        os.close(target.event_descriptor)


def _install_templates(target: _Target, is_on: bool) -> Any:  # noqa: FBT001 - as above
    if not is_on:
        return None
    templates = _patch("templates")
    if target.made.templates is None:
        raise RuntimeError(target.made.problems.get("templates", "no template was compiled"))
    known = templates.Templates(target.made.templates)
    known.install()
    return known.noted


def _simple(name: str) -> Callable[[_Target, bool], None]:
    def install_one(_: _Target, is_on: bool) -> None:  # noqa: FBT001 - as above
        if is_on:
            _patch(name).install()

    return install_one


_INSTALLERS: Mapping[str, Callable[[_Target, bool], Any]] = {
    "modules": _install_modules,
    "commands": _simple("commands"),
    "tasks": _install_tasks,
    "events": _install_events,
    "facts": _simple("facts"),
    "copies": _simple("copies"),
    "fields": _simple("fields"),
    "listings": _simple("listings"),
    "values": _simple("values"),
    "templates": _install_templates,
}
"""In the order in which they are installed."""
