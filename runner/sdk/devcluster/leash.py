"""Execution of a program that is killed when its parent process exits.

Run as a script (`leash.py PARENT_PID [--join=PID] PROGRAM ARGUMENTS...`), it sets the parent death signal and executes
PROGRAM with the same process id. Only Linux has this signal; on other systems the supervisor's guard kills the program.
A `preexec_fn` is unsafe in a process with threads.

`--join=PID` enters the network namespace of a process first, and `--enter=PID` also its mount namespace and the process
namespace of its children. A process cannot change its own process namespace. PROGRAM therefore runs in a child, which
is killed with this process, and whose exit code this process returns.

Must import only the standard library: it runs with `python -I -S`, which takes about ten milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
JOIN, ENTER = "--join=", "--enter="
_NETWORK, _ALL = ("net",), ("net", "mnt", "pid_for_children")


def main(arguments: list[str]) -> None:
    """Set the parent death signal and execute the program."""
    parent, *command = arguments
    if sys.platform == "linux":
        die_with_parent()
        if os.getppid() != int(parent):  # the parent exited before prctl
            os.kill(os.getpid(), signal.SIGKILL)
    option, _, process = command[0].partition("=")
    if f"{option}=" in {JOIN, ENTER}:
        del command[0]
        enter(Path("/proc", process, "ns"), _NETWORK if f"{option}=" == JOIN else _ALL)
    if f"{option}=" == ENTER:
        sys.exit(in_child(lambda: os.execv(command[0], command)))  # noqa: S606 - becoming another program is the purpose
    os.execv(command[0], command)  # noqa: S606 - becoming another program is what this file is for


def die_with_parent() -> None:
    """Request that the kernel kills this process when its parent exits."""
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter(folder: Path, names: tuple[str, ...]) -> None:
    """Enter namespaces, and return to the working directory, which a change of the mount namespace resets."""
    here = Path.cwd()
    opened = [os.open(folder / name, os.O_RDONLY) for name in names]
    for descriptor in opened:
        call("setns", descriptor, 0)
        os.close(descriptor)
    os.chdir(here)


def in_child(program: Callable[[], object]) -> int:
    """Run `program` in a child that is killed with this process; return its exit code, as a shell does."""
    ours, theirs = os.pipe()  # ours has input or ends as soon as this process exits
    child = os.fork()
    if child:
        os.close(ours)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    os.close(theirs)
    die_with_parent()
    os.set_blocking(ours, False)
    try:
        os.read(ours, 1)
        os._exit(1)  # the parent exited before prctl
    except BlockingIOError:
        os.close(ours)
    program()
    os._exit(0)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library[name](*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1:])
