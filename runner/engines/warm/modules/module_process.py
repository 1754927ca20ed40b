"""Process of a module: the steps of AnsiballZ in a new interpreter, done in a fork.

Owns everything between the fork and the module's exit code: descriptors, session, folder, environment, streams,
`sys.argv`, `__main__`, and the end of the interpreter. Promises never to return.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import json
import os
import pickle
import resource
import runpy
import secrets
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, NoReturn, TypeAlias

from runner.agent import interpreter
from runner.agent.interpreter import Stream
from runner.engines.warm import procfs
from runner.engines.warm.modules import module_namespace
from runner.engines.warm.modules.module_namespace import Interpreter, ModuleNamespace
from runner.engines.warm.modules.payload import Payload
from runner.engines.warm.modules.tame import Between

_OF_NAMES = "abcdefghijklmnopqrstuvwxyz0123456789_"
"""Characters of temporary names."""
_COLD_DEPTH = 4
"""Position on the stack, from 1, of the function with which AnsiballZ runs a module."""


Following: TypeAlias = Callable[[int | None], list[int]]
"""Reports the exit code of a module, if there was one, and returns the descriptors of the next one for this process."""


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """One module to run."""

    payload: Payload | tuple[str, str]
    """The payload, or the name and path of a preloaded one."""
    module_name: str
    script: str
    """Path to which Ansible would have copied the module."""
    parameters: bytes
    profile: str
    """Serialization profile of the result; empty for ansible-core 2.18."""
    open_files: int
    secrets: frozenset[str] | None
    """Secrets in the parameters, which the module masks; None before ansible-core 2.22."""
    environment: Mapping[bytes, bytes]
    umask: int
    learned: str
    """File for the names of modules that were imported in addition to the preloaded ones, or empty."""


@dataclass(frozen=True, slots=True)
class ModuleContext:
    """State from which every module of a run starts."""

    namespace: ModuleNamespace
    payloads: Mapping[tuple[str, str], Payload]
    interpreter: Interpreter


def runner(context: ModuleContext) -> Callable[[list[int], Following | None], NoReturn]:
    """Return the function that runs in a module's process with its descriptors."""

    def run(descriptors: list[int], following: Following | None) -> NoReturn:
        between = Between(context.namespace) if following else None
        code: int | None = None
        while True:
            if following:
                descriptors = following(code)
            request = _arrive(descriptors)
            _become(context, request)
            if between:
                between.begin()
            before = frozenset(sys.modules)
            code = _run(request, _payload(context, request).name)
            _learn(context, request, before)
            if not (following and between and _ends(between, code)):
                _end(code)
            _let_go()

    return run


def _ends(between: Between, code: int) -> bool:
    """Return True if a module has ended, and its process can run the next one."""
    try:
        return between.end(code) and _flush()
    except Exception:  # noqa: BLE001 - what a module left is unusual: its process ends, as that of other modules
        return False


def _let_go() -> None:
    """Close the streams of a module, so that its end is visible."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(len(interpreter.NAMES)):
        os.dup2(nothing, number)
    os.close(nothing)


def _payload(context: ModuleContext, request: ModuleRequest) -> Payload:
    return request.payload if isinstance(request.payload, Payload) else context.payloads[request.payload]


def _arrive(descriptors: list[int]) -> ModuleRequest:
    """Install the streams and the folder."""
    stdin, stdout, stderr, _, folder, body = descriptors
    os.fchdir(folder)
    with os.fdopen(os.dup(body), "rb") as file:
        file.seek(0)
        request: ModuleRequest = _Unpickler(file).load()
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    return request


class _Unpickler(pickle.Unpickler):
    """Unpickler that imports nothing of Ansible."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return a class of this package or of the standard library."""
        if module_namespace.is_ours(module_name):
            raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in a module's process")
        return super().find_class(module_name, global_name)


def _become(context: ModuleContext, request: ModuleRequest) -> None:
    os.umask(request.umask)
    os.environ.clear()
    os.environb.update(request.environment)
    context.interpreter.show([sys.executable, request.script], os.environ)
    procfs.name(os.path.basename(sys.executable))  # noqa: PTH119 - a string
    time.tzset()
    try:
        os.getcwd()  # noqa: PTH109 - AnsiballZ's own test
    except OSError:
        os.chdir(os.path.expanduser("~"))  # noqa: PTH111 - as AnsiballZ does
    if request.open_files:
        _limit_open_files(request.open_files)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    encodings = zip(interpreter.NAMES, context.interpreter.encodings, strict=True)
    interpreter.open_streams({name: Stream(*encoding, unbuffered) for name, encoding in encodings})
    _mend()
    module_namespace.take(context.namespace, _payload(context, request), _archive(request))


def _archive(request: ModuleRequest) -> str:
    """Return the path that the archive of a payload would have: in its own temporary folder, which does not exist."""
    name = f"ansible_{request.module_name}_payload"
    chance = "".join(secrets.choice(_OF_NAMES) for _ in range(8))
    folder = os.path.join(tempfile.gettempdir(), f"{name}_{chance}")  # noqa: PTH118 - a string
    return os.path.join(os.path.realpath(folder) if request.profile else folder, f"{name}.zip")  # noqa: PTH118


def _limit_open_files(limit: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, limit)
    if limit != soft:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


MENDED = frozenset({"KUBECONFIG"})
"""Environment variables that preloaded libraries read at import, and that are read again here."""


def _mend() -> None:
    for name in ("kubernetes.config.kube_config", "kubernetes.config"):
        module: Any = sys.modules.get(name)
        if module:
            module.KUBE_CONFIG_DEFAULT_LOCATION = os.environ.get("KUBECONFIG", "~/.kube/config")


def _run(request: ModuleRequest, name: str) -> int:
    """Run the module like AnsiballZ. Return the exit code that an interpreter would have."""
    sys.argv = [request.script]
    sys.orig_argv = [sys.executable, request.script]
    main = ModuleType("__main__")
    main.__file__ = request.script
    sys.modules["__main__"] = main
    library = sys.path[0]
    _hide_frames()
    try:
        if request.profile:
            _run_with_loader(request, name, library)
        else:
            _run_with_arguments(request, name, library)
    except SystemExit as end:
        return interpreter.code_of(end.code)
    except BaseException as error:  # noqa: BLE001 - as an interpreter does
        with contextlib.suppress(Exception):
            _show(error)
        if isinstance(error, KeyboardInterrupt):
            _flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _show(error: BaseException) -> None:
    """Write the traceback of a module's exception as an interpreter does at its end."""
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)  # the default hook formats without the library before Python 3.13
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _hide_frames() -> None:
    """Raise the recursion limit, so that a module can recurse as deeply as in an interpreter with only AnsiballZ."""
    depth = 0
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to know
    while frame:
        depth, frame = depth + 1, frame.f_back
    hidden = max(0, depth + 2 - _COLD_DEPTH)
    get, put = sys.getrecursionlimit, sys.setrecursionlimit
    put(get() + hidden)
    sys.getrecursionlimit = lambda: get() - hidden
    sys.setrecursionlimit = lambda limit, /: put(limit + hidden)


def _run_with_loader(request: ModuleRequest, name: str, library: str) -> None:
    from ansible.module_utils._internal._ansiballz import _loader  # noqa: PLC0415 - the module namespace's

    secrets = {} if request.secrets is None else {"secrets": request.secrets}
    _loader.run_module(
        json_params=request.parameters,
        profile=request.profile,
        module_fqn=name,
        modlib_path=library,
        extensions={},
        **secrets,
    )


def _run_with_arguments(request: ModuleRequest, name: str, library: str) -> None:
    """Run the module like ansible-core 2.18."""
    from ansible.module_utils import basic  # noqa: PLC0415 - the module namespace's

    basic._ANSIBLE_ARGS = request.parameters  # noqa: SLF001 - as AnsiballZ does
    runpy.run_module(
        mod_name=name,
        init_globals={"_module_fqn": name, "_modlib_path": library},
        run_name="__main__",
        alter_sys=True,
    )
    print('{"msg": "New-style module did not handle its own exit", "failed": true}')  # noqa: T201 - as AnsiballZ does
    sys.exit(1)


def _learn(context: ModuleContext, request: ModuleRequest, before: frozenset[str]) -> None:
    """Note which modules were imported, so that they are preloaded the next time."""
    if not request.learned:
        return
    fresh = sorted(name for name in sys.modules if name not in before and _is_of(context.namespace.path, name))
    if fresh or not isinstance(request.payload, tuple):
        name = _full_name(_payload(context, request).name) or request.module_name
        line = json.dumps({"module": name, "imports": fresh}) + "\n"
        with contextlib.suppress(OSError):
            descriptor = os.open(request.learned, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(descriptor, line.encode())  # one call: lines of two modules do not mix
            os.close(descriptor)


def _full_name(python_name: str) -> str:
    """Return the name by which Ansible finds a module of a collection in each playbook; empty for other modules.

    A task can contain a short name, which Ansible finds only with the keyword `collections`.
    """
    match python_name.split("."):
        case ["ansible_collections", namespace, collection, "plugins", "modules", *rest] if rest:
            return ".".join((namespace, collection, *rest))
    return ""


def _is_of(path: tuple[str, ...], name: str) -> bool:
    """Return True if an import by this name finds the same module as here, where `sys.path` may differ."""
    top, _, rest = name.partition(".")
    if rest:
        return _is_of(path, top)
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None or module_namespace.is_ours(name) or name == "__main__":
        return False
    resolved = importlib.machinery.PathFinder.find_spec(name, list(path))
    return resolved is not None and resolved.origin == spec.origin


def _end(code: int) -> NoReturn:
    """End like an interpreter: wait for threads, run exit handlers, flush."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - as above
    os._exit(code if _flush() else interpreter.NOT_FLUSHED)


def _flush() -> bool:
    """Flush the streams. Return True if that succeeded."""
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:  # noqa: BLE001 - whatever a module put there
            flushed = False
    return flushed
