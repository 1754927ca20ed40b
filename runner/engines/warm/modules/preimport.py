"""Preload of modules in the fork server: it resolves their payloads, and imports code without side effects.

Owns the choice of imports. Some libraries must be imported by each module again, as in a new interpreter. These start a
thread, a process or a connection at import, or read a file that may change. To find them, everything is first imported
in a separate, watched process, and libraries with such side effects are skipped. So are those whose import takes too
long. Environment variables that imports read become part of the conditions under which a module can use the server.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ansible.plugins.loader import module_loader

from runner.core.engine import processes
from runner.engines.warm.modules import libraries, module_namespace
from runner.engines.warm.modules import payload as payloads
from runner.engines.warm.modules.module_namespace import Interpreter, ModuleNamespace
from runner.engines.warm.modules.payload import Payload

ALWAYS = tuple(f"ansible.legacy.{name}" for name in ("command", "copy", "file", "stat"))
"""Modules that Ansible's own actions run."""
_USES_TLS = "ansible.module_utils.urls"
_SIDE_EFFECTS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostname",
        "subprocess.Popen",
    }
)
_ROUNDS = 4
_TRIAL_WITHIN = 15.0
"""Seconds that the imports of one trial may take."""
_KILLED_AFTER = 5.0
"""Seconds more, for an import that cannot be interrupted."""
_RESOLVED_WITHIN = 60.0
"""Seconds for the resolution of all modules."""
_HARMLESS = ("/dev/", "/etc/mime.types", "/etc/localtime", "/proc/self/")


@dataclass(frozen=True, slots=True)
class Resolution:
    """The payloads of modules that can be resolved here."""

    payloads: tuple[Payload, ...] = ()
    problems: tuple[str, ...] = ()
    """Why others cannot."""


@dataclass(frozen=True, slots=True)
class Preimported:
    """Preloaded state for modules."""

    payloads: tuple[Payload, ...]
    namespace: ModuleNamespace
    read: Mapping[str, str | None]
    """Environment variables that the imports read, and their values."""
    interpreter: Interpreter
    problems: tuple[str, ...] = ()
    """Why modules could not be resolved or imported here; each of them resolves and imports that itself."""


@dataclass(frozen=True, slots=True)
class _Trial:
    harmful: frozenset[str]
    read: Mapping[str, str | None]
    blocked: tuple[str, ...] = ()
    """Modules that were being imported when the time was over, the innermost first."""
    died: bool = False


class _TimeoutError(BaseException):
    """The time for imports is over. Not an `Exception`, because libraries handle those of their own imports."""

    def __init__(self, blocked: list[str]) -> None:
        super().__init__(", ".join(blocked))
        self.blocked = blocked


def begin(names: Iterable[str], folder: Path) -> Callable[[], Resolution]:
    """Begin to resolve these modules in a process beside this one; return a function that waits for them.

    That process takes the memory with it that Ansible needs to parse all their files. Requires a process with a single
    thread, in which Ansible's plugin loader is set up.
    """
    module_loader.find_plugin_with_context(ALWAYS[0])  # it reads Ansible's table of routes, which both processes need
    file = folder / "payloads"
    end = processes.begin_fork(partial(_resolve_into, file, {*ALWAYS, *names}), _RESOLVED_WITHIN)

    def resolution() -> Resolution:
        problem = end()
        if problem is None:
            problem = f"their process died, or took more than {_RESOLVED_WITHIN:g} seconds"
        if problem:
            return Resolution(problems=(f"each run resolves modules itself: {problem}",))
        found: Resolution = pickle.loads(file.read_bytes())  # noqa: S301 - this server's own
        file.unlink()
        return found

    return resolution


def _resolve_into(file: Path, names: Iterable[str]) -> str:
    """Write a `Resolution`; return why that failed."""
    problems: list[str] = []
    try:
        with payloads.parsed_once():
            modules = tuple(_resolve(names, problems))
        file.write_bytes(pickle.dumps(Resolution(modules, tuple(problems))))
    except Exception as error:  # noqa: BLE001 - the server reports it
        return f"{type(error).__name__}: {error}"
    return ""


def make(resolution: Resolution, imports: Iterable[str], interpreter: Interpreter) -> Preimported:
    """Import the dependencies of these modules; `imports` names further imports of earlier runs.

    Requires a process with a single thread.
    """
    modules, problems = resolution.payloads, [*resolution.problems]
    imports, path = tuple(imports), interpreter.path
    skip: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        trial = _try(modules, skip, path, imports)
        problems += _report(trial)
        if trial.harmful <= skip:
            namespace = module_namespace.build(modules, skip, path, imports)
            libraries.prepare_kubernetes()
            libraries.prepare_commands()
            if _USES_TLS in namespace.modules:
                libraries.prepare_tls()
            return Preimported(modules, namespace, trial.read, interpreter, tuple(problems))
        skip |= trial.harmful
    problems.append("modules need to import all that they use, as its import has other side effects each time")
    return Preimported(modules, module_namespace.build((), skip, path, ()), {}, interpreter, tuple(problems))


def _resolve(names: Iterable[str], problems: list[str]) -> Iterator[Payload]:
    for name in sorted(names):
        try:
            path = module_loader.find_plugin_with_context(name, "").plugin_resolved_path
            if path and path.endswith(".py"):
                yield payloads.resolve(name, path, Path(path).read_bytes())
        except payloads.UNRESOLVABLE:
            continue  # the task that uses the module reports the problem
        except Exception as error:  # noqa: BLE001 - a defect, which the server reports
            problems.append(f"the module {name} cannot be resolved: {type(error).__name__}: {error}")


def _try(modules: tuple[Payload, ...], skip: frozenset[str], path: tuple[str, ...], imports: tuple[str, ...]) -> _Trial:
    everything = frozenset(name for module in modules for name in module.entries).union(imports)

    def act() -> dict[str, Any]:
        watch = _Watch()
        watch.start()
        blocked: list[str] = []
        _interrupt_after(_TRIAL_WITHIN)
        try:
            module_namespace.build(modules, skip, path, imports)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _TimeoutError as error:
            blocked = error.blocked
        harmful = everything if threading.active_count() > 1 else watch.harmful.union(blocked)
        return {"harmful": sorted(harmful), "read": watch.read, "blocked": blocked}

    trial = processes.result_of_fork(act, _TRIAL_WITHIN + _KILLED_AFTER)
    if trial is None:
        return _Trial(everything, {}, died=True)
    return _Trial(frozenset(trial["harmful"]), trial["read"], tuple(trial["blocked"]))


def _interrupt_after(seconds: float) -> None:
    """Raise `_TimeoutError` in the main thread of this process after some seconds."""

    def interrupt(_number: int, frame: FrameType | None) -> NoReturn:
        raise _TimeoutError(_importing(frame))

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _report(trial: _Trial) -> Iterator[str]:
    """Yield why imports were given up; libraries with other side effects are expected, and not reported."""
    if trial.blocked:
        blocked = trial.blocked[0]
        yield f"the import of {blocked} takes more than {_TRIAL_WITHIN:g} seconds; modules import it themselves"
    if trial.died:
        yield "the trial of the imports of modules died; modules import all that they use"


class _Watch:
    """Watch of imports. It cannot be stopped: only for a process that ends itself."""

    def __init__(self) -> None:
        self.harmful: set[str] = set()
        self.read: dict[str, str | None] = {}
        self._code = tuple(
            os.path.realpath(folder) + os.sep for folder in {*sys.path, sys.prefix, sys.base_prefix} if folder
        )

    def start(self) -> None:
        sys.addaudithook(self._audit)
        note = self._note

        environ: Any = type(os.environ)

        class Watched(environ):  # type: ignore[misc]  # the class of the one environment
            def __getitem__(self, name: str) -> str:
                note(name)
                value: str = super().__getitem__(name)
                return value

            def get(self, name: str, default: Any = None) -> Any:
                note(name)
                return super().get(name, default)

            def __contains__(self, name: object) -> bool:
                note(name)
                return bool(super().__contains__(name))

        os.environ.__class__ = Watched

    def _note(self, name: object) -> None:
        if isinstance(name, str) and any(_importing(sys._getframe(1))):  # noqa: SLF001 - there is no other way to know
            # a lookup by bytes raises a TypeError and returns no value
            self.read[name] = os.environb.get(os.fsencode(name), b"").decode(errors="replace") or None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            harmful = self._is_data(arguments[0])
        elif event == "socket.bind":
            harmful = not _is_probe(arguments[1])
        else:
            harmful = event in _SIDE_EFFECTS
        if harmful:
            self.harmful.update(_importing(sys._getframe(1)))  # noqa: SLF001 - as above

    def _is_data(self, path: object) -> bool:
        """Return True if an opened file can change while the server lives. Code and system files cannot."""
        if not isinstance(path, str | bytes):
            return False
        text = os.fsdecode(path)
        if text.startswith("<") and text.endswith(">"):
            return False  # not a file: code that formats a traceback searches for source lines there
        return not os.path.realpath(text).startswith((*self._code, *_HARMLESS))


def _is_probe(address: object) -> bool:
    """Return True if a socket is bound to port 0: a library checks for IPv6."""
    return isinstance(address, tuple) and len(address) > 1 and address[1] == 0


def _importing(frame: FrameType | None) -> list[str]:
    """Return the names of the modules that are being imported, the innermost first."""
    names = []
    while frame:
        if frame.f_code.co_name == "<module>":
            names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return names
