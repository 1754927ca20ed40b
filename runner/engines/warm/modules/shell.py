"""Effects of the shells between Ansible and a local command, produced without a shell.

Ansible runs each local command as `/bin/sh -c '/bin/sh -c "..."'`: to create a temporary folder, to remove it, to start
a module. Owns the effects of these shells on a command's environment and exit code. Also owns the execution of the few
commands that Ansible's `sh` plugin itself creates.

Promises: a command is executed here only if it is identical to one that the plugin created, and only if that succeeds.
Otherwise the shell executes it.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PLAIN = re.compile(r"/[A-Za-z0-9_./@%+=:,-]*")
"""Paths that a shell does not change, even without quotes."""
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_OF_SHELLS = frozenset(
    {b"DIRSTACK", b"FUNCNAME", b"GROUPS", b"HISTCMD", b"IFS", b"LINENO", b"MAILCHECK", b"OPTIND"}
    | {b"PS0", b"PS1", b"PS2", b"PS3", b"PS4"}
)
"""Variables that a shell may reset or drop at its start. `PPID` and those below are handled separately."""
_CHANGES_BASH = (b"BASH_ENV", b"BASHOPTS", b"SHELLOPTS")
"""Variables that make bash execute other code, or the same code in another way."""
_BITS = {"r": 4, "w": 2, "x": 1}
_SHELLS = ("dash", "bash")

Plan = Callable[[], str | None]
"""Executes a command; returns its output, or None if it was not executed."""


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a command: its exit code, or the negative signal number, and its output."""

    code: int
    stdout: bytes
    stderr: bytes


class Unlike(Exception):  # noqa: N818 - not an error: the shell itself expands it then
    """The effect of a shell is unknown."""


@dataclass(frozen=True, slots=True)
class Shells:
    """The shells that a command goes through."""

    outer: str
    inner: str
    tail: str
    """Text after the command in the inner shell: `&& sleep 0`, or empty."""

    def line(self, command: str) -> str:
        """Return the command line for the outer shell."""
        return f"{self.inner} -c {shlex.quote(command + self.tail)}"


def environment(shells: Shells, program: str, folder: str, before: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the environment that a program receives through both shells, started in a folder."""
    through = _after(shells.outer, before, shells.inner, stays=False)
    after = _after(shells.inner, through, program, stays=bool(shells.tail))
    after[b"PWD"] = _folder(before.get(b"PWD", b""), os.fsencode(folder))
    return after


def _kind(shell: str) -> str:
    kind = Path(os.path.realpath(shutil.which(shell) or shell)).name
    if kind not in _SHELLS:
        raise Unlike(f"{shell} is neither dash nor bash")
    return kind


def _after(shell: str, before: Mapping[bytes, bytes], program: str, *, stays: bool) -> dict[bytes, bytes]:
    """Return the environment that a program receives from one shell. `stays`: the shell waits for the program."""
    kind = _kind(shell)
    if kind == "dash":
        after = {name: value for name, value in before.items() if _NAME.fullmatch(name)}
        if b"PPID" in after:
            after[b"PPID"] = b"%d" % os.getpid()
    else:
        if any(name in before for name in _CHANGES_BASH):
            raise Unlike("the environment has variables that change how bash executes commands")
        after = {name: value for name, value in before.items() if name != b"PPID"}
        if not os.path.isdir(after.get(b"OLDPWD", b"/")):  # noqa: PTH112 - bytes
            del after[b"OLDPWD"]
        level = before.get(b"SHLVL", b"0")
        after[b"SHLVL"] = b"%d" % ((int(level) if level.isdigit() else 0) + stays)
        after[b"_"] = os.fsencode(program)
    own = tuple(sorted((name, value) for name, value in after.items() if _is_of_shells(name)))
    if own:
        for name, _ in own:
            del after[name]
        after.update(_passed_on(shell, own))
    return after


def _is_of_shells(name: bytes) -> bool:
    return name in _OF_SHELLS or name.startswith((b"BASH", b"COMP_"))


@functools.cache
def _passed_on(shell: str, variables: tuple[tuple[bytes, bytes], ...]) -> Mapping[bytes, bytes]:
    """Start the shell once. Return these variables as it exports them: it may reset, drop or rewrite them.

    An interactive shell may export some of them: `activate` of a virtual environment exports `PS1`.
    """
    names = {name for name, _ in variables}
    show = "import sys; sys.stdout.buffer.write(open('/proc/self/environ', 'rb').read())"
    line = f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(show)}"
    try:
        completed = subprocess.run(
            [shell, "-c", line], env=dict(variables), stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unlike(f"{shell} cannot be started") from error
    exported = (entry.partition(b"=") for entry in completed.stdout.split(b"\0"))
    return {name: value for name, _, value in exported if name in names}


def _folder(claimed: bytes, folder: bytes) -> bytes:
    """Return a shell's name for its working folder: the claimed one if it is the same folder."""
    try:
        if claimed.startswith(b"/") and os.path.samefile(claimed, folder):  # noqa: PTH121 - bytes
            return claimed
        return os.path.realpath(folder)
    except OSError:
        return os.path.realpath(folder)


_DIE = "import os, signal; {0} in (9, 19) or signal.signal({0}, signal.SIG_DFL); os.kill(os.getpid(), {0})"


def ending(shells: Shells, output: Output) -> Output:
    """Return the end of a program as visible through the shells: the exit code, and their message about a signal."""
    if output.code >= 0:
        return output
    # Not with a shell's own `kill`: a shell never dies of a signal that was ignored at its start, as SIGINT may be.
    dying = f"{shlex.quote(sys.executable)} -I -S -c {shlex.quote(_DIE.format(-output.code))}"
    line = shells.line(dying)
    completed = subprocess.run([shells.outer, "-c", line], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return Output(completed.returncode, output.stdout + completed.stdout, output.stderr + completed.stderr)


@dataclass(slots=True)
class Commands:
    """The commands that a shell plugin created last, each with a plan of the same effect."""

    _plans: dict[str, Plan] = field(default_factory=dict)

    def note(self, command: str, plan: Plan | None) -> None:
        """Store a command."""
        if plan is not None:
            self._plans = {command: plan}  # each command is executed at once, so the last one is sufficient

    def find(self, line: str, shells: Shells) -> Plan | None:
        """Return the plan for a command line of the outer shell."""
        return next((plan for command, plan in self._plans.items() if shells.line(command) == line), None)


def make_folder(base: str, name: str, mode: int) -> Plan | None:
    """Return a plan that creates `base/name` and its missing parents, all with `mode`, and prints `name=path`."""
    path = os.path.join(base, name)  # noqa: PTH118 - as the plugin joins them
    if not _PLAIN.fullmatch(path):
        return None

    def plan() -> str | None:
        try:
            for parent in reversed(Path(path).parents):
                if not parent.exists():
                    _make_folder(parent, mode)
            _make_folder(Path(path), mode)
        except OSError:
            return None
        return f"{name}={path}\n"

    return plan


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(mode=mode)
    if stat.S_IMODE(path.stat().st_mode) != mode:  # the umask removed permissions
        path.chmod(mode)


def remove(path: str) -> Plan | None:
    """Return a plan that removes a folder with its content."""
    if not path.startswith("/"):
        return None

    def plan() -> str | None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return "" if not os.path.lexists(path) else None
        except OSError:
            return None
        return ""

    return plan


def change_mode(paths: Any, mode: str) -> Plan | None:
    """Return a plan that adds permissions, such as `u+rwx`."""
    match = re.fullmatch(r"u\+([rwx]+)", mode)
    if not match:
        return None
    bits = sum(_BITS[letter] << 6 for letter in set(match[1]))

    def plan() -> str | None:
        try:
            for path in paths:
                os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | bits)  # noqa: PTH101,PTH116 - strings
        except OSError:
            return None
        return ""

    return plan


def expand_user(path: str, username: str) -> Plan | None:
    """Return a plan that prints a home folder: `~`, `~name`."""
    if path != "~" and not re.fullmatch(r"~[a-z_][a-z0-9_-]*", path):
        return None
    home = path + username if path == "~" else path

    def plan() -> str | None:
        expanded = os.path.expanduser(home)  # noqa: PTH111 - a string
        return expanded + "\n" if _PLAIN.fullmatch(expanded) else None

    return plan
