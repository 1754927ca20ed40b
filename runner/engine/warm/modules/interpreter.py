"""What is known of an interpreter that starts to run a module, and how a fork looks like one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that starts in the environment of runs."""

    path: tuple[str, ...]
    """`sys.path`."""
    encodings: tuple[tuple[str, str], ...]
    """Encoding and errors of each standard stream."""
    show: Callable[[Sequence[str], Mapping[str, str]], None]
    """Makes a command line and an environment what others see of this process."""
