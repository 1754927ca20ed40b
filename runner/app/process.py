"""Parts of the process: signals, errors of the event loop, runner folder, memory."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from runner.base import log
from runner.base.config import shortages
from runner.base.config.locks import FileLock
from runner.core.engine.run_dir import private_folder
from runner.values.errors import ConfigError, EngineError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHORTAGE_INTERVAL = 10.0
"""Seconds after which a shortage that goes on is logged again."""
_LOCK = ".lock"
_MOST_FOLDERS = 9

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options of malloc.h."""
_LARGE_BLOCK = 512 << 10
"""More than the 256 KiB that asyncio allocates for each read of a socket, which must not cost system calls."""

_log = log.get(__name__)


class StopSignals:
    """SIGTERM and SIGINT: the first requests a stop, the second makes it urgent."""

    def __init__(self, grace: float) -> None:
        """`grace`: seconds that runs may take after the first signal."""
        self.stop = asyncio.Event()
        self.urgent = asyncio.Event()
        self._grace = grace

    def catch(self) -> None:
        """Handle the process's signals from now on. Call it in the main thread, in the loop."""
        loop = asyncio.get_running_loop()

        def forward(number: int, _: FrameType | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it everything else
                loop.call_soon_threadsafe(self._caught, signal.Signals(number).name)

        # Not with loop.add_signal_handler: signals would kill the process again as soon as the loop ends.
        for signum in _SIGNALS:
            signal.signal(signum, forward)

    def _caught(self, name: str) -> None:
        if self.urgent.is_set():
            return
        if self.stop.is_set():
            self.urgent.set()
            _log.warning("Canceling all runs", signal=name)
            return
        self.stop.set()  # before the log, which fails if nothing reads it any more
        _log.info("Stopping", signal=name, grace_seconds=self._grace)


def return_large_blocks() -> bool:
    """Let the C library return each large block of memory to the kernel when it is freed.

    By default, glibc raises the limit for such blocks with each one that is freed, up to 32 MiB (mallopt(3)). After
    some large objects, the process then keeps most of their memory. A limit that is set turns this off, also for the
    free memory that the heap may keep at its end. Returns False for a C library without these options.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK) and mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BLOCK))
    except (OSError, AttributeError):
        return False


def ignore_signals() -> None:
    """Ignore stop signals once everything has stopped: a late one must not turn a clean exit into a failure."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


class LoopErrorHandler:
    """Exception handler of an event loop (`asyncio.loop.set_exception_handler`) that logs shortages once.

    A server without a free file descriptor retries by itself a second later. Until then asyncio reports the same error
    for each pending connection, hundreds of times, with a traceback each.
    """

    def __init__(self) -> None:
        self._logged_at: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that the loop reports."""
        error = context.get("exception")
        if not isinstance(error, OSError) or not shortages.passes(error) or "socket" not in context:
            loop.default_exception_handler(context)
        elif self._logged_at is None or loop.time() - self._logged_at >= _SHORTAGE_INTERVAL:
            self._logged_at = loop.time()
            _log.warning(
                "Cannot accept connections; if this continues, raise the limit of open files (ulimit -n)",
                reason=error.strerror,
            )


@contextmanager
def runner_folder(chosen: Path, default: Path) -> Iterator[Path]:
    """Lock the runner folder for this process, and yield its path.

    Two operators in one folder would remove each other's runs. If another operator uses the default folder, a free
    folder beside it is used. If another user has created it, the folder has the own user's id. Both are logged.

    Raises:
        ConfigError: another operator uses a folder that is not the default, or this user may not use the folder.
    """
    beside = [chosen.with_name(f"{chosen.name}-{number}") for number in range(2, _MOST_FOLDERS + 1)]
    # As deep as the default, because some roles count the parts of paths.
    beside.append(chosen.parent.with_name(f"{chosen.parent.name}-{os.geteuid()}") / chosen.name)
    problem = f"another operator uses {chosen}; give each operator a folder of its own"
    for folder in (chosen, *(beside if chosen == default else ())):
        lock = FileLock(folder / _LOCK)
        try:
            if chosen == default:
                _refuse_private(folder.parent)
            private_folder(folder)
            is_free = lock.acquire()
        except (OSError, EngineError) as error:
            if isinstance(error, PermissionError) and (chosen == default or not os.access(folder, os.W_OK | os.X_OK)):
                problem = f"this user may not use {folder} ({error}); select another folder"
                continue
            _log.warning(
                "Cannot lock the runner folder; no other operator may use it", folder=str(folder), error=str(error)
            )
            is_free = True
        if not is_free:
            continue
        if folder != chosen:
            _log.warning(
                "Another operator or user has the default runner folder; using another one. Set --runner-dir",
                default=str(chosen),
                folder=str(folder),
            )
        try:
            yield folder
        finally:
            lock.release()
        return
    raise ConfigError(f"--runner-dir: {problem}")


def _refuse_private(folder: Path) -> None:
    """Raise PermissionError if only another user may use the folder. Root could, but they would share it unlocked."""
    if folder.exists() and (status := folder.stat()).st_uid != os.geteuid() and not status.st_mode & 0o077:
        raise PermissionError(errno.EACCES, "another user has created it", str(folder))
