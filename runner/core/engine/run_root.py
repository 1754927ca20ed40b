"""Root of the run folders, and what the engines of one operator share, such as the pids of supervisors.

See `docs/decisions/0004-run-processes.md` for the cleanup after an operator that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from runner.agent import process_tree
from runner.base import log
from runner.core.engine import artifacts, processes
from runner.core.engine import run_dir as inputdir
from runner.core.engine.artifacts import KeptRuns

_LEFTOVER_GRACE = 2.0
_LEFTOVER_KILL = 10.0
_REAP_FOR, _REAP_EVERY = 20.0, 0.5
"""Seconds."""
_EXPIRE_EVERY = 60.0
"""Seconds between searches for runs of deleted objects that are kept no longer."""
_log = log.get(__name__)


class RunRoot:
    """Folder with the run folders of one operator. Create it in the main thread."""

    def __init__(self, path: Path, disk_limit: int = 0, callbacks: Sequence[Path] = ()) -> None:
        """`disk_limit`: bytes that the run folders of all objects may use together; 0 is unlimited."""
        self.path = path
        self.callbacks = callbacks
        """Folders of callbacks that Ansible loads in each run."""
        self.kept = KeptRuns(path, disk_limit)
        """The run folders."""
        self.supervisors: set[int] = set()
        """Pids of all supervisors."""
        self._reaping: asyncio.Task[None] | None = None
        self._surveying: asyncio.Task[None] | None = None
        process_tree.adopt_orphans()

    async def reap_leftovers(self) -> int:
        """End the processes that a dead operator's runs on the same root left. Return their number.

        The files of its runs are measured afterwards, in the background, where those of deleted objects expire too.
        """
        ended = await asyncio.to_thread(_end_leftovers, self.path)
        self._surveying = asyncio.create_task(self._follow())
        return ended

    def reap_orphans(self) -> None:
        """Reap the processes that an ended starter of supervisors may have left, for some time."""
        if self._reaping:
            self._reaping.cancel()  # the time starts again
        self._reaping = asyncio.create_task(reap_orphans(self.supervisors))

    async def close(self) -> None:
        """End the work in the background, after all engines are closed."""
        tasks = [task for task in (self._surveying, self._reaping) if task]
        for task in tasks:
            task.cancel()
        self.kept.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        work = self.kept.survey
        while True:
            try:
                await asyncio.to_thread(work)
            except OSError as error:
                _log.warning("Cannot measure all run folders of earlier runs", error=str(error))
            work = self.kept.expire
            await asyncio.sleep(_EXPIRE_EVERY)


async def reap_orphans(known: Collection[int]) -> None:
    """Reap the processes that a dead starter of supervisors left, for some time, such as a run that it was starting.

    `known` are the pids of all supervisors; the collection may change meanwhile.
    """
    deadline = time.monotonic() + _REAP_FOR
    while time.monotonic() < deadline:
        await asyncio.sleep(_REAP_EVERY)
        if processes.has_dead_children():
            with contextlib.suppress(OSError):  # file descriptors ran out: retry at the next interval
                await asyncio.to_thread(processes.reap_orphans, known)


def _end_leftovers(root: Path) -> int:
    """End leftover processes, and remove what only their runs used. The files of a living operator are kept."""
    ended = processes.leftovers(root)
    process_tree.send(ended, signal.SIGTERM)
    deadline = time.monotonic() + _LEFTOVER_GRACE
    while (left := processes.leftovers(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + _LEFTOVER_KILL
    while left and time.monotonic() < deadline:
        process_tree.send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = processes.leftovers(root)
    running = process_tree.table()
    for run_dir, identity in inputdir.unfinished(root):
        if not processes.operator_lives(identity, running):
            try:
                inputdir.clear(run_dir)
                artifacts.discard_unfinished(run_dir / "artifacts")
            except OSError as error:  # another user can own them: one object must not keep the operator from starting
                _log.warning("Cannot remove files that a run left; remove them by hand", error=str(error))
    return len(ended)
