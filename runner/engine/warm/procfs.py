"""What `/proc` shows of this process: its command line, its environment and its name.

A fork keeps what its parent was started with, though runs are found by a variable in `/proc/<pid>/environ`, and people
read `ps`. Owns overwriting those strings in place. Promises: never writes outside the memory that the kernel shows;
what does not fit is cut at its end. The parent must be started with room to spare: see `padding`. Linux only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PADDING = "ANSIBLE_OPERATOR_PADDING"
_ROOM = 16 << 10
_PR_SET_NAME = 15
_FIELDS = ("arg_start", "arg_end", "env_start", "env_end")
_FIRST_FIELD = 47
"""Place of `arg_start` among the fields of proc_pid_stat(5), from 0."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The two stretches of memory that the kernel shows."""

    arguments: int
    arguments_end: int
    environment: int
    environment_end: int


def padding() -> str:
    """Return a value for `PADDING`, and an argument, that leave room for longer ones."""
    return "-" * _ROOM


def take_over() -> Shown:
    """Find the memory and see to it that the C library reads nothing from it any more. Call it once, early."""
    for name, value in list(os.environ.items()):
        os.environ[name] = value  # setenv copies what it is given
    text = Path("/proc/self/stat").read_bytes()
    # The command may hold spaces and brackets; what follows its last bracket is fixed.
    fields = text[text.rindex(b")") + 2 :].split()
    first = _FIRST_FIELD - 2
    return Shown(*(int(field) for field in fields[first : first + len(_FIELDS)]))


def show(shown: Shown, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Show these as the command line and the environment of this process."""
    strings = [f"{name}={value}" for name, value in environment.items()]
    _write(shown.arguments, shown.arguments_end, arguments)
    _write(shown.environment, shown.environment_end, strings)


def name(text: str) -> None:
    """Set the name that `ps` and `top` show; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, text.encode(), 0, 0, 0)


def _write(start: int, end: int, strings: Sequence[str]) -> None:
    data = b"".join(os.fsencode(each) + b"\0" for each in strings)[: end - start - 1]
    # The last byte stays zero: the kernel takes arguments that do not end in one for longer than they are.
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, data, len(data))
