"""Execution of a program that is killed when its parent process exits.

Run as a script (`leash.py PARENT_PID PROGRAM ARGUMENTS...`), it sets the parent death signal and executes PROGRAM with
the same process id. Only Linux has this signal; on other systems the supervisor's guard kills the program. A
`preexec_fn` is unsafe in a process with threads.

Must import only the standard library: it runs with `python -I -S`, which takes about ten milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Set the parent death signal and execute the program."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # the parent exited before prctl
            os.kill(os.getpid(), signal.SIGKILL)
    os.execv(command[0], command)  # noqa: S606 - becoming another program is what this file is for


if __name__ == "__main__":
    main(sys.argv[1:])
