"""How much the run folders of all objects hold, and how much of it may stay.

Flow: `begin` and `end` bracket each run; `end` measures the folder and makes room where the limit is passed: objects
that have not run for the longest time are the first to keep only their newest run, and after that nothing. Promises:
a folder in use is never touched; one that is removed goes whole; what an earlier operator left counts once it was
looked at. Blocking I/O, from any thread. An entry per object is all that is remembered.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path

from runner import log
from runner.engine import artifacts

_BLOCK = 512
"""Bytes in which st_blocks counts, whatever the file system's own blocks are (stat(2))."""
_MARK = Path("env", "envvars")
"""What every run folder has."""


class KeptRuns:
    """The run folders below one root."""

    def __init__(self, root: Path, limit: int) -> None:
        """`limit`: bytes that all of them may hold; 0: as many as they like."""
        self.size = 0
        """Bytes that they hold, as far as they were looked at."""
        self._root = root
        self._limit = limit
        self._lock = threading.RLock()
        self._busy: Counter[Path] = Counter()
        self._whole: OrderedDict[str, int] = OrderedDict()
        """Bytes of each folder, the longest unused first."""
        self._trimmed: OrderedDict[str, int] = OrderedDict()
        """The same of folders that keep only their newest run."""
        self._is_closed = False
        self._log = log.get(__name__)

    def begin(self, run_dir: Path) -> None:
        """A run is going to use a folder."""
        with self._lock:
            self._busy[run_dir] += 1

    def end(self, run_dir: Path, keep: int) -> None:
        """It has ended, and its folder was cleared; `keep` is how many runs of the object are kept."""
        with self._lock:
            self._busy[run_dir] -= 1
            if self._busy[run_dir] <= 0:
                del self._busy[run_dir]
                if keep == artifacts.KEEP_NONE:
                    self._remove(run_dir)
        if self._limit:
            self._measure(run_dir, newest=True)
            self._make_room()

    def remove(self, run_dir: Path) -> None:
        """Remove the folder of an object that is gone, unless a run uses it."""
        with self._lock:
            if not self._busy[run_dir]:
                self._remove(run_dir)

    def clear_out(self, base: Path, in_use: Collection[Path]) -> int:
        """Remove the run folders below `base`, but those `in_use`; return how many that were."""
        found = [run_dir for run_dir in run_folders(base) if run_dir not in in_use]
        for run_dir in found:
            if self._is_closed:
                break
            self.remove(run_dir)
        return len(found)

    def survey(self) -> None:
        """Look at what an earlier operator left, so that it counts too."""
        if not self._limit:
            return
        # The latest first: each goes to the front of what is known so far.
        found = sorted(((_modified(run_dir), run_dir) for run_dir in run_folders(self._root)), reverse=True)
        for _, run_dir in found:
            if self._is_closed:
                return
            with self._lock:
                is_known = str(run_dir) in self._whole or str(run_dir) in self._trimmed or self._busy[run_dir]
            if not is_known:
                self._measure(run_dir, newest=False)
        self._make_room()

    def close(self) -> None:
        """End what goes through many folders."""
        self._is_closed = True

    def _measure(self, run_dir: Path, *, newest: bool) -> None:
        held = used(run_dir)
        with self._lock:
            self._forget(run_dir)
            if held:
                self.size += held
                self._whole[str(run_dir)] = held
                self._whole.move_to_end(str(run_dir), last=newest)

    def _make_room(self) -> None:
        with self._lock:
            for name in list(self._whole) if self.size > self._limit else ():
                if self.size <= self._limit:
                    return
                if not self._busy[Path(name)]:
                    self._trim(Path(name))
            for name in list(self._trimmed):
                if self.size <= self._limit:
                    return
                if not self._busy[Path(name)]:
                    self._log.info("A run folder is removed to make room", folder=name, limit=self._limit)
                    self._remove(Path(name))

    def _trim(self, run_dir: Path) -> None:
        """Keep the newest run alone."""
        artifacts.rotate(run_dir / "artifacts", 1)
        held = used(run_dir)
        self._forget(run_dir)
        if held:
            self.size += held
            self._trimmed[str(run_dir)] = held

    def _remove(self, run_dir: Path) -> None:
        artifacts.remove(run_dir)
        self._forget(run_dir)

    def _forget(self, run_dir: Path) -> None:
        name = str(run_dir)
        self.size -= self._whole.pop(name, 0) + self._trimmed.pop(name, 0)


def run_folders(root: Path) -> Iterator[Path]:
    """Yield each run folder below `root`. Looks into none: there may be thousands, each with thousands of files."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if (folder / _MARK).is_file():
            yield folder
            continue
        try:
            with os.scandir(folder) as entries:
                waiting += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue  # removed meanwhile, or not ours to read


def used(folder: Path) -> int:
    """Return the bytes that a folder and all below it take on the disk; 0 when it is not there."""
    size, waiting = 0, [folder]
    while waiting:
        place = waiting.pop()
        try:
            size += place.lstat().st_blocks * _BLOCK
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        except OSError:
            continue  # removed meanwhile, or not ours to read: what a role made as another user, say
    return size


def _modified(run_dir: Path) -> int:
    try:
        return (run_dir / "artifacts").stat().st_mtime_ns
    except OSError:
        return 0
