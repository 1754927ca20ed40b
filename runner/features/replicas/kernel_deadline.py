"""A kernel timer that ends this process at a given time, even if the process is stopped.

A stopped process (SIGSTOP, a frozen container, a machine that swaps) cannot check its clock. When it resumes, its next
instruction may send a request. A kernel timer (timer_create(2)) therefore sends SIGKILL, which also ends stopped
processes and acts before a frozen process runs. It counts CLOCK_BOOTTIME, which includes suspend. Child processes do
not inherit it.

Promises: `arm` replaces the earlier deadline. If the kernel has no such timer or ignores the signal (process 1 of a
container), `make` logs a warning; its deadline has no effect.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time

from runner.base import log

_IS_LINUX = platform.system() == "Linux"
_SIGEV_SIGNAL = 0
_TIMER_ABSTIME = 1
_log = log.get(__name__)


class _SignalEvent(ctypes.Structure):
    """`struct sigevent`, whose size is 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    )


class _Spec(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


def clock() -> float:
    """Return the seconds of the clock that the deadline uses."""
    if _IS_LINUX:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class NoKernelDeadline:
    """Deadline without effect."""

    def arm(self, due: float | None) -> None:
        """Do nothing."""


class KernelDeadline:
    """The timer of this process."""

    def __init__(self) -> None:
        """Create the timer. Raises OSError if the C library or the kernel does not provide it."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self._due: float | None = None
        event = _SignalEvent(signal=signal.SIGKILL, notify=_SIGEV_SIGNAL)
        try:
            made = self._libc.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))
        except AttributeError as error:
            raise OSError("this C library has no timer_create") from error
        _check(made)

    def arm(self, due: float | None) -> None:
        """Kill this process when `clock` reaches `due`, or never if None. A `due` in the past kills it at once."""
        if due == self._due:
            return
        self._due = due
        # A timer that is due at zero is one that is off.
        seconds, rest = divmod(max(due, 1e-9), 1) if due is not None else (0.0, 0.0)
        spec = _Spec(0, 0, int(seconds), int(rest * 1e9))
        _check(self._libc.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(spec), None))


def make() -> KernelDeadline | NoKernelDeadline:
    """Create the deadline of this process."""
    why = ""
    if not _IS_LINUX:
        why = "only Linux has the required timer"
    elif os.getpid() == 1:
        why = "the kernel does not kill process 1; start the operator under an init such as tini"
    else:
        try:
            return KernelDeadline()
        except OSError as error:
            why = str(error)
    _log.warning("The kernel cannot stop a replica that is paused for longer than its lease duration", reason=why)
    return NoKernelDeadline()


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
