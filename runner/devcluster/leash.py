"""Become another program that dies with the process which started it.

Owns nothing but the step from fork to exec: run as a script (`leash.py PARENT_PID PROGRAM ARGUMENTS...`), it asks the
kernel to kill this process when its parent dies (Linux; elsewhere the guard of the supervisor does that work) and
becomes PROGRAM, same process id. A script and not a `preexec_fn`: that one is unsafe beside threads.

Must import nothing outside the standard library: it runs with `python -I -S`, so that it costs some ten milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the program."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it died before the kernel knew
            os.kill(os.getpid(), signal.SIGKILL)
    os.execv(command[0], command)  # noqa: S606 - becoming another program is what this file is for


if __name__ == "__main__":
    main(sys.argv[1:])
