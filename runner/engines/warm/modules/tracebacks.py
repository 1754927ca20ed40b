"""Tracebacks without the frames of this package."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

_OURS = str(__package__).rpartition(".")[0].replace(".", "/") + "/"


def hide() -> None:
    """Remove this package's frames from every traceback that this process and its forks format from now on."""
    walk: Any = traceback._walk_tb_with_full_positions  # type: ignore[attr-defined]  # noqa: SLF001 - no other way in

    def walk_others(frames: TracebackType | None) -> Iterator[Any]:
        return (entry for entry in walk(frames) if _OURS not in entry[0].f_code.co_filename)

    traceback._walk_tb_with_full_positions = walk_others  # type: ignore[attr-defined]  # noqa: SLF001 - as above


def show(error: BaseException) -> None:
    """Write the traceback of a module's exception as an interpreter does at its end."""
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)  # the default hook formats without the library before Python 3.13
    else:
        sys.excepthook(type(error), error, error.__traceback__)
