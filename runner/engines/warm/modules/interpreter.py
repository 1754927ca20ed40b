"""Properties of an interpreter that starts to run a module, which a fork copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that starts in the environment of runs."""

    path: tuple[str, ...]
    """`sys.path` of the interpreter."""
    encodings: tuple[tuple[str, str], ...]
    """Encoding and error handler of each standard stream."""
    show: Callable[[Sequence[str], Mapping[str, str]], None]
    """Sets the command line and the environment that other processes read from `/proc`."""
