"""Limit of the disk space of all run folders.

Flow: `begin` and `end` bracket each run. `end` measures the folder. If the total exceeds the limit, the largest group
of folders loses some, where a group is the objects of one kind in one namespace. Its least recently used objects lose
all runs except their newest one, and after that everything. So a user who keeps many runs displaces only those of users
who keep as many. Promises: a folder in use is never changed; a removal removes the whole folder; folders of an earlier
operator count after `survey` measured them. Blocking I/O, from any thread. The memory use is an entry per object.
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
        self._whole: dict[str, OrderedDict[str, int]] = {}
        """Bytes of each folder by group, least recently used first."""
        self._trimmed: dict[str, OrderedDict[str, int]] = {}
        """The same for folders that keep only their newest run."""
        self._held: Counter[str] = Counter()
        """Total bytes of each group."""
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
                name, group = str(run_dir), _group(run_dir)
                is_measured = any(name in folders.get(group, ()) for folders in (self._whole, self._trimmed))
                is_known = is_measured or self._busy[run_dir]
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
            self._add(self._whole, run_dir, held, newest=newest)

    def _make_room(self) -> None:
        with self._lock:
            while self.size > self._limit and (found := self._next()) is not None:
                run_dir, is_whole = found
                if is_whole:
                    self._trim(run_dir)
                else:
                    self._log.info(
                        "Removed a run folder because the disk limit is exceeded",
                        folder=str(run_dir),
                        limit=self._limit,
                    )
                    self._remove(run_dir)

    def _next(self) -> tuple[Path, bool] | None:
        """Return the folder to make smaller, and whether it has older runs; None if all folders are in use."""
        for group, _ in self._held.most_common():
            for folders in (self._whole, self._trimmed):
                idle = next((Path(name) for name in folders.get(group, ()) if not self._busy[Path(name)]), None)
                if idle is not None:
                    return idle, folders is self._whole
        return None

    def _trim(self, run_dir: Path) -> None:
        """Remove all runs of a folder except the newest."""
        artifacts.rotate(run_dir / "artifacts", 1)
        held = used(run_dir)
        self._forget(run_dir)
        self._add(self._trimmed, run_dir, held, newest=True)

    def _remove(self, run_dir: Path) -> None:
        artifacts.remove(run_dir)
        self._forget(run_dir)

    def _add(self, folders: dict[str, OrderedDict[str, int]], run_dir: Path, held: int, *, newest: bool) -> None:
        if not held:
            return
        name, group = str(run_dir), _group(run_dir)
        self.size += held
        self._held[group] += held
        of_group = folders.setdefault(group, OrderedDict())
        of_group[name] = held
        of_group.move_to_end(name, last=newest)

    def _forget(self, run_dir: Path) -> None:
        group = _group(run_dir)
        for folders in (self._whole, self._trimmed):
            held = folders.get(group, OrderedDict()).pop(str(run_dir), 0)
            self.size -= held
            self._held[group] -= held
            if not folders.get(group, True):
                del folders[group]
        if not self._held[group]:
            del self._held[group]


def _group(run_dir: Path) -> str:
    """Return the folder of the objects of one kind in one namespace."""
    return str(run_dir.parent)


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
