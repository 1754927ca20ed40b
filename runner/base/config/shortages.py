"""Errors of exhausted resources of the machine: open files, memory, disk.

The traceback of such an error is useless, because any call can fail. The log has one line with the resource and advice.
Tasks that must complete (ending processes, removing secrets) are retried during a temporary shortage.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from runner.agent.process_tree import SHORTAGES

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
"""Advice for the user by errno(3)."""
_RETRY_TIME, _RETRY_INTERVAL = 30.0, 0.2
"""Seconds."""


def of(error: BaseException | None) -> OSError | None:
    """Return the shortage that is or caused `error`; None for other errors, and for groups with other errors."""
    if isinstance(error, BaseExceptionGroup):
        shortages = [of(member) for member in error.exceptions]
        return shortages[0] if all(shortages) else None
    while error is not None:
        if isinstance(error, OSError) and error.errno in ADVICE:
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def passes(error: OSError) -> bool:
    """Return whether `error` is a shortage that usually ends by itself."""
    return error.errno in SHORTAGES


async def outlast(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in a thread; retry it for half a minute if it fails with a temporary shortage."""
    deadline = asyncio.get_running_loop().time() + _RETRY_TIME
    while True:
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        except OSError as error:
            if not passes(error) or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(_RETRY_INTERVAL)


def check_descriptors(number: int) -> None:
    """Raise OSError unless `number` more files can be opened, before work that needs all of them."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(number))
    finally:
        for descriptor in opened:
            os.close(descriptor)
