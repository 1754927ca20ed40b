"""Command line, environment and name of this process in `/proc`.

A fork keeps those of its parent. But a variable in `/proc/<pid>/environ` identifies the processes of a run, and users
read `ps`. Owns overwriting these strings in place. Promises: never writes outside the memory that the kernel shows;
longer strings are cut at their end. The parent must be started with spare memory: see `padding`. Linux only.
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
"""Index of `arg_start` among the fields of proc_pid_stat(5), from 0."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The two memory areas that the kernel shows."""

    arguments: int
    arguments_end: int
    environment: int
    environment_end: int


def padding() -> str:
    """Return a value for `PADDING`, and an argument, that reserve memory for longer ones."""
    return "-" * _ROOM


def take_over() -> Shown:
    """Return the memory areas, and make the C library stop reading from them. Call it once, early."""
    for name, value in list(os.environ.items()):
        os.environ[name] = value  # setenv copies the value
    text = Path("/proc/self/stat").read_bytes()
    # The command can contain spaces and brackets; the fields after its last bracket are fixed.
    fields = text[text.rindex(b")") + 2 :].split()
    first = _FIRST_FIELD - 2
    return Shown(*(int(field) for field in fields[first : first + len(_FIELDS)]))


def show(shown: Shown, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Set the command line and the environment of this process in `/proc`."""
    strings = [f"{name}={value}" for name, value in environment.items()]
    _write(shown.arguments, shown.arguments_end, arguments)
    _write(shown.environment, shown.environment_end, strings)


def name(text: str) -> None:
    """Set the name that `ps` and `top` show; the kernel keeps 15 bytes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, text.encode(), 0, 0, 0)


def _write(start: int, end: int, strings: Sequence[str]) -> None:
    data = b"".join(os.fsencode(string) + b"\0" for string in strings)[: end - start - 1]
    # The last byte stays zero: the kernel reads past arguments that do not end with zero.
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, data, len(data))
