"""What the machine has no more of: open files, memory, disk.

Such an error says nothing about the place where it came up, so its trace helps nobody: what failed is told in one line,
with what is short. What must not be left undone (ending processes, removing secrets) outlasts a shortage that passes.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ADVICE = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
    errno.ENOBUFS: "give the machine more memory",
    errno.ENOMEM: "raise the limit of memory",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "raise the quota of the disk",
}
"""What to do about a shortage, by the number of its error (errno(3))."""
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""A full disk stays full; these end with what others do."""
_PATIENCE, _AGAIN_AFTER = 30.0, 0.2
"""Seconds."""


def of(error: BaseException | None) -> OSError | None:
    """Return the shortage that `error` is or was made from; `None` if it is something else, or also something else."""
    if isinstance(error, BaseExceptionGroup):
        found = [of(each) for each in error.exceptions]
        return found[0] if all(found) else None
    while error is not None:
        if isinstance(error, OSError) and error.errno in ADVICE:
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def passes(error: OSError) -> bool:
    """Whether `error` is a shortage that ends by itself, as a rule."""
    return error.errno in _PASSING


async def outlast(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in a thread, and for half a minute again and again where a shortage that passes hinders it."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        except OSError as error:
            if not passes(error) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_AGAIN_AFTER)


def check_descriptors(number: int) -> None:
    """See to it that as many files could be opened now; an `OSError` says that they cannot.

    For what would be left half done where only some can.
    """
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(number))
    finally:
        for each in opened:
            os.close(each)
