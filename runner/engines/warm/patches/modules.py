"""Modules without a new interpreter: they run in forks of the run's zygote.

Hooks into Ansible at the point where it has resolved a module and would pack it, and where the local connection would
execute a command. Promises: Ansible itself executes a module in these cases:

- another connection, `become`, `async` or another interpreter;
- modules that are not written in Python;
- kept remote files, a debugger or -vvv;
- variables that an interpreter reads when it starts.

Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.executor import module_common
from ansible.executor.interpreter_discovery import InterpreterDiscoveryRequiredError
from ansible.executor.process.worker import WorkerProcess
from ansible.plugins import action as action_plugins
from ansible.plugins.action import ActionBase
from ansible.plugins.connection import ensure_connect, local
from ansible.plugins.shell import sh
from ansible.utils.display import Display

from runner.engines.warm import task_record, versions
from runner.engines.warm.modules import module_process, shell, tame
from runner.engines.warm.modules.module_process import ModuleRequest
from runner.engines.warm.modules.payload import UNRESOLVABLE, Payload, Payloads, encoded, plain
from runner.engines.warm.modules.zygote import Unavailable, Zygote
from runner.engines.warm.patches import commands, guard
from runner.engines.warm.versions import Session

_INTERPRETERS = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "OPENSSL_")
_INTERPRETERS_OWN = frozenset({"LANG", "LANGUAGE", "HOME", "PATH"})
EXPECTED = (AnsibleError, OSError)
"""Exceptions that a task's own values and files may cause."""
_OWN_WAYS = frozenset({"ansible.modules.async_wrapper", "ansible.modules.async_status"})


class _Prepared(bytes):
    """Replacement for a packed module on its way through Ansible to the connection."""

    request: ModuleRequest
    folder: str
    shells: shell.Shells
    kept: bool
    """True if it may run in the process that is kept for tame modules."""


class _OwnWay(Exception):  # noqa: N818 - not an error
    """Signal that Ansible itself executes this module, in a new interpreter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Modules:
    """Starter of this run's modules."""

    zygote: Zygote
    session: Session
    payloads: Payloads
    preimported: Mapping[tuple[str, str], Payload]
    tame: frozenset[tuple[str, str]]
    """Those of the preloaded modules that can share a process."""
    sensitive: Mapping[str, str | None]
    """Variables that were read during the preload, and their values then."""
    learned: str

    def prepare(self, action: Any, source: bytes, arguments: Mapping[str, Any]) -> Any:
        """Return the result of `modify_module` for a module that can be forked.

        Raises:
            _OwnWay: Ansible must execute the module itself.
        """
        task_vars, templar = arguments["task_vars"], arguments["templar"]
        for applies, reason in (
            (not _is_python(source), "not_python"),
            (versions.is_instrumented(task_vars), "debugger"),
            (arguments["async_timeout"], "async"),
            (versions.worker_session(task_vars) is not self.session, "session"),
        ):
            if applies:
                raise _OwnWay(reason)
        try:
            shebang = versions.interpreter(source, task_vars, templar)
        except InterpreterDiscoveryRequiredError as error:
            raise _OwnWay("other_interpreter") from error  # Ansible runs the discovery
        if shebang != f"#!{sys.executable}":
            raise _OwnWay("other_interpreter")
        environment = arguments["environment"]
        if not self._may_change(environment):
            raise _OwnWay("interpreter_environment")
        cache = Path(constants.DEFAULT_LOCAL_TMP) / "warm_payloads"
        try:
            payload = self.payloads.find(arguments["module_name"], arguments["module_path"], source, cache)
        except UNRESOLVABLE as error:
            raise _OwnWay("payload") from error  # Ansible reports the module's problem
        if payload.name in _OWN_WAYS:
            raise _OwnWay("async")
        if payload.starts_anew:
            raise _OwnWay("starts_interpreter")
        prepared = _Prepared(b"#")
        prepared.shells = commands.shells()
        call = versions.encode(arguments["module_args"], task_vars, templar)
        prepared.folder = action._loader.get_basedir()
        through = _through(prepared.shells, prepared.folder, environment)
        key = (payload.name, payload.path)
        # The files of a module can have changed since the preload, and others can override them.
        is_preimported = self.preimported.get(key) is payload and not payload.overrides
        own = environment or call.open_files or call.secrets or not tame.shares(arguments["module_args"])
        prepared.kept = is_preimported and key in self.tame and not own
        prepared.request = ModuleRequest(
            payload=key if is_preimported else payload,
            module_name=plain(arguments["module_name"]),
            script=_script(action, payload),
            parameters=call.parameters,
            profile=call.profile,
            open_files=call.open_files,
            secrets=call.secrets,
            environment=through,
            umask=_umask(),
            learned=self.learned,
        )
        return versions.built(prepared, shebang)

    def _may_change(self, environment: Mapping[str, Any]) -> bool:
        """Return True if these variables can be set in a running interpreter."""
        for name, value in environment.items():
            if not str(name).isidentifier():
                return False
            if str(value) != os.environ.get(name) and is_sensitive(name, self.sensitive):
                return False
        return True

    def run(self, prepared: _Prepared) -> shell.Output:
        """Run a module in a fork."""
        begun = guard.record_module_start
        try:
            output = self.zygote.run(prepared.request, prepared.folder, begun, kept=prepared.kept)
        except (KeyboardInterrupt, SystemExit):
            if guard.is_unforked():  # there is no worker which Ansible could end together with its modules
                self.end_running(signal.SIGTERM)
            raise
        return shell.ending(prepared.shells, output)

    def end_running(self, number: int) -> None:
        """Send a signal to the modules that this process waits for."""
        if self.zygote.running:
            self.session.end(self.zygote.pid, self.zygote.running, number)


def _script(action: Any, payload: Payload) -> str:
    """Return the path to which Ansible would copy the module."""
    folder = plain(str(action._connection._shell.tmpdir or ""))
    return os.path.join(folder, f"AnsiballZ_{Path(payload.path).name}")  # noqa: PTH118 - as Ansible joins them


def _through(shells: shell.Shells, folder: str, added: Mapping[str, Any]) -> Mapping[bytes, bytes]:
    environment = dict(os.environb)
    environment.update({encoded(str(name)): encoded(str(value)) for name, value in added.items()})
    try:
        return shell.environment(shells, sys.executable, folder, environment)
    except shell.Unlike as error:
        raise _OwnWay("shell_environment") from error


def is_sensitive(name: str, read: Mapping[str, str | None]) -> bool:
    """Return True if an interpreter or an imported library reads a variable only once."""
    own = name.startswith(_INTERPRETERS) or name in _INTERPRETERS_OWN or name in read
    return own and name not in module_process.MENDED


def _is_python(source: bytes) -> bool:
    return (
        b"\0" not in source
        and module_common.REPLACER not in source
        and bool(module_common.NEW_STYLE_PYTHON_MODULE_RE.search(source))
    )


def _umask() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def install(modules: Modules) -> None:
    """Install the execution of modules in forks."""
    current: list[Any] = []
    _hook_execute(current)
    _hook_modify(modules, current)
    _hook_pipelining()
    _hook_connection(modules)
    _hook_end_of_worker(modules)


def _hook_execute(current: list[Any]) -> None:
    execute: Callable[..., Any] = ActionBase._execute_module

    @functools.wraps(execute)
    def execute_module(self: Any, *args: Any, wrap_async: bool = False, **kwargs: Any) -> Any:
        self._warm = None
        self._obstacle = "async" if wrap_async else _obstacle(self)
        current.append(self)
        try:
            try:
                return execute(self, *args, wrap_async=wrap_async, **kwargs)
            except Unavailable as error:  # it is raised before anything has run
                reason = error.reason
            finally:
                self._warm, self._obstacle = None, "fork_failed"
            self._obstacle = reason
            return execute(self, *args, wrap_async=wrap_async, **kwargs)
        finally:
            current.pop()

    ActionBase._execute_module = execute_module


def _obstacle(action: Any) -> str:
    """Return why an action's modules cannot be forked, regardless of the module; empty if they can."""
    connection = action._connection
    if type(connection) is not local.Connection or type(connection._shell) is not sh.ShellModule:
        return "connection"
    for applies, reason in (
        (connection.become, "become"),
        (action._task.async_val, "async"),
        (constants.DEFAULT_KEEP_REMOTE_FILES, "keep_remote_files"),
        (Display().verbosity >= commands.SHOWN_FROM, "verbosity"),
        (action._play_context.executable != constants.DEFAULT_EXECUTABLE, "executable"),
    ):
        if applies:
            return reason
    return ""


def _hook_modify(modules: Modules, current: list[Any]) -> None:
    modify: Callable[..., Any] = action_plugins.modify_module
    names = ("module_name", "module_path", "module_args", "templar")

    @functools.wraps(modify)
    def modify_module(*args: Any, **kwargs: Any) -> Any:
        action: Any = current[-1] if current else None
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        name = str(arguments["module_name"])
        # An action that overrides `_execute_module` has no obstacle noted.
        reason = getattr(action, "_obstacle", "action")
        if not reason:
            try:
                built = modules.prepare(action, Path(arguments["module_path"]).read_bytes(), arguments)
            except _OwnWay as own:
                reason = own.reason
            except EXPECTED:
                reason = "payload"  # Ansible reports the task's problem
            except Exception:  # noqa: BLE001 - reported as a defect; the task takes Ansible's own way
                task_record.defect("modules")
                reason = "defect"
            else:
                action._warm = True
                task_record.add(task_record.MODULE, name)
                return built
        # Outside a handler: otherwise Python would report an exception of Ansible as raised while handling another.
        guard.need_fork(reason)
        task_record.add(task_record.INTERPRETER, name, reason)
        return modify(*args, **kwargs)

    action_plugins.modify_module = modify_module


def _hook_pipelining() -> None:
    """Make a forked module use pipelining, so that nothing is written to a file."""
    enabled = ActionBase._is_pipelining_enabled

    @functools.wraps(enabled)
    def is_pipelining_enabled(self: Any, module_style: str, *args: Any, **kwargs: Any) -> bool:
        return bool(getattr(self, "_warm", None)) or bool(enabled(self, module_style, *args, **kwargs))

    ActionBase._is_pipelining_enabled = is_pipelining_enabled


def _hook_connection(modules: Modules) -> None:
    execute = local.Connection.exec_command

    @functools.wraps(execute)
    def exec_command(self: Any, cmd: Any, in_data: Any = None, sudoable: bool = True) -> Any:  # noqa: FBT001,FBT002
        if not isinstance(in_data, _Prepared):
            guard.need_fork("command")
            return execute(self, cmd, in_data=in_data, sudoable=sudoable)
        return on_connection(self, in_data)

    def run(_: Any, prepared: _Prepared) -> tuple[int, bytes, bytes]:
        output = modules.run(prepared)
        return output.code, output.stdout, output.stderr

    on_connection: Callable[..., Any] = ensure_connect(run)

    local.Connection.exec_command = exec_command


def _hook_end_of_worker(modules: Modules) -> None:
    """Make a worker end its module when it is ended, as if the module were in its group of processes."""
    end: Callable[..., Any] | None = getattr(WorkerProcess, "_term", None)
    if end is None:  # before ansible-core 2.19 a worker has no group of its own
        return

    @functools.wraps(end)
    def term(self: Any, signum: int, frame: Any) -> Any:
        modules.end_running(signum)
        return end(self, signum, frame)

    WorkerProcess._term = term
