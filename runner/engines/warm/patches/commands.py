"""Commands of the `sh` plugin, executed without a shell: this process creates and removes temporary folders.

Hooks into the shell plugin, which notes the effect of each command, and into the local connection, which would execute
it. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ansible import constants
from ansible.module_utils.common.text.converters import to_bytes
from ansible.plugins.connection import ensure_connect, local
from ansible.plugins.shell import sh
from ansible.utils.display import Display

from runner.engines.warm import versions
from runner.engines.warm.modules import shell

SHOWN_FROM = 3
"""Verbosity from which Ansible prints each command that it executes. Then Ansible executes them."""


def shells() -> shell.Shells:
    """Return the shells that execute a command."""
    return shell.Shells(constants.DEFAULT_EXECUTABLE.split()[0], constants.DEFAULT_EXECUTABLE, versions.SHELL_TAIL)


def install() -> None:
    """Install the execution of the `sh` plugin's own commands without a shell."""
    _hook_shell()
    execute = local.Connection.exec_command

    @functools.wraps(execute)
    def exec_command(self: Any, cmd: Any, in_data: Any = None, sudoable: bool = True) -> Any:  # noqa: FBT001,FBT002
        noted = getattr(self._shell, "_noted", None)
        if noted is None or in_data is not None or self.become or Display().verbosity >= SHOWN_FROM:
            return execute(self, cmd, in_data=in_data, sudoable=sudoable)
        plan = noted.find(os.fsdecode(to_bytes(cmd)), shells())
        printed = plan() if plan else None
        if printed is None:
            return execute(self, cmd, in_data=in_data, sudoable=sudoable)
        return on_connection(self, printed)

    def answer(_: Any, printed: str) -> tuple[int, bytes, bytes]:
        return 0, printed.encode(), b""

    on_connection: Callable[..., Any] = ensure_connect(answer)
    local.Connection.exec_command = exec_command


def _hook_shell() -> None:
    """Install methods that note the commands which the plugin creates."""
    plugin = sh.ShellModule

    def noting(name: str, plan_of: Callable[..., shell.Plan | None]) -> None:
        method = getattr(plugin, name)

        @functools.wraps(method)
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            command = method(self, *args, **kwargs)
            if type(self) is plugin:
                commands = self.__dict__.setdefault("_noted", shell.Commands())
                commands.note(command, plan_of(*args, **kwargs))
            return command

        setattr(plugin, name, noted)

    noting("mkdtemp", _plan_folder)
    noting("remove", lambda path, recurse=False: shell.remove(path) if recurse else None)
    noting("chmod", shell.change_mode)
    noting("expand_user", lambda user_home_path, username="": shell.expand_user(user_home_path, username))


def _plan_folder(
    basefile: str | None = None,
    system: bool = False,  # noqa: FBT001,FBT002 - as the plugin has it
    mode: int = 0o700,
    tmpdir: str | None = None,
) -> shell.Plan | None:
    if system or not basefile or not tmpdir or not mode:
        return None
    return shell.make_folder(tmpdir, basefile, mode)
