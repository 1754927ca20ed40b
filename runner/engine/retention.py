"""Limit of the disk space of all run folders.

Flow: `begin` and `end` bracket each run. `end` measures the folder. If the total exceeds the limit, the least recently
used objects lose all runs except their newest one, and after that everything. Promises: a folder in use is never
changed; a removal removes the whole folder; folders of an earlier operator count after `survey` measured them. Blocking
I/O, from any thread. The memory use is an entry per object.
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
"""Unit of st_blocks in bytes, regardless of the file system's block size (stat(2))."""
_MARK = Path("env", "envvars")
"""File that every run folder contains."""


class KeptRuns:
    """Run folders below one root."""

    def __init__(self, root: Path, limit: int) -> None:
        """Create the record of the folders. `limit` is their maximum total in bytes; 0 is unlimited."""
        self.size = 0
        """Total bytes of the measured folders."""
        self._root = root
        self._limit = limit
        self._lock = threading.RLock()
        self._busy: Counter[Path] = Counter()
        self._whole: OrderedDict[str, int] = OrderedDict()
        """Bytes of each folder, least recently used first."""
        self._trimmed: OrderedDict[str, int] = OrderedDict()
        """The same for folders that keep only their newest run."""
        self._is_closed = False
        self._log = log.get(__name__)

    def begin(self, run_dir: Path) -> None:
        """Register a run that starts to use a folder."""
        with self._lock:
            self._busy[run_dir] += 1

    def end(self, run_dir: Path, keep: int) -> None:
        """Register the end of a run whose folder was cleared. `keep` is the number of runs that the object keeps."""
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
        """Remove the folder of a deleted object, unless a run uses it."""
        with self._lock:
            if not self._busy[run_dir]:
                self._remove(run_dir)

    def clear_out(self, base: Path, in_use: Collection[Path]) -> int:
        """Remove the run folders below `base`, except those `in_use`. Return the number of folders to remove."""
        found = [run_dir for run_dir in run_folders(base) if run_dir not in in_use]
        for run_dir in found:
            if self._is_closed:
                break
            self.remove(run_dir)
        return len(found)

    def survey(self) -> None:
        """Measure the folders that an earlier operator left, so that they count too."""
        if not self._limit:
            return
        # The latest first, because each is inserted before the folders measured so far.
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
        """Stop loops over many folders."""
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
                    self._log.info(
                        "Removed a run folder because the disk limit is exceeded", folder=name, limit=self._limit
                    )
                    self._remove(Path(name))

    def _trim(self, run_dir: Path) -> None:
        """Remove all runs of a folder except the newest."""
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
    """Yield each run folder below `root`. Does not list their content: there can be thousands with many files each."""
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
            continue  # removed meanwhile, or not readable


def used(folder: Path) -> int:
    """Return the disk usage in bytes of a folder and everything below it; 0 if it does not exist."""
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
            continue  # removed meanwhile, or not readable: created by a role as another user, for example
    return size


def _modified(run_dir: Path) -> int:
    try:
        return (run_dir / "artifacts").stat().st_mtime_ns
    except OSError:
        return 0
