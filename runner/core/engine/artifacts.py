"""Artifacts of runs: one folder per run below `artifacts/` of a run folder, and the limit of the disk space of all.

Owns their names, the link `artifacts/latest`, rotation and removal.

Flow: `begin` and `end` bracket each run. `end` measures the folder. If the total exceeds the limit, the largest group
of folders loses some, where a group is the objects of one kind in one namespace. Its least recently used objects lose
all runs except their newest one, and after that everything. So a user who keeps many runs displaces only those of users
who keep as many.

The last run of a deleted object is kept below `DELETED` for some minutes. These folders count too, and go first.

Promises: a folder in use is never changed. A removal removes the whole folder, and delays only the next run of the same
object. Folders of an earlier operator count after `survey` measured them. Blocking I/O, from any thread. The memory use
is an entry per object.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from runner.base import log

LATEST = "latest"
KEEP_ALL = 0
KEEP_NONE = -1
_BLOCK = 512
"""Unit of st_blocks in bytes, regardless of the file system's block size (stat(2))."""
_MARK = Path("env", "envvars")
"""File that every run folder contains."""
DELETED = ".deleted"
"""Folder of the root with the last run of deleted objects, at the paths of their run folders."""
_DELETED_FOR, _MOST_DELETED = 900.0, 100
"""Seconds for which a deleted object's run is kept, and the number of these objects."""


class KeptRuns:
    """Run folders below one root."""

    def __init__(self, root: Path, limit: int) -> None:
        """Create the record of the folders. `limit` is their maximum total in bytes; 0 is unlimited."""
        self._log = log.get(__name__)
        self.size = 0
        """Total bytes of the measured folders."""
        self._root = root
        self._limit = self._within_file_system(limit)
        self._lock = threading.Condition()
        self._busy: Counter[Path] = Counter()
        self._claimed: set[Path] = set()
        """Folders that are being made smaller. No run may use them, and `_lock` is notified when one leaves."""
        self._is_making_room = False
        self._folders: dict[str, OrderedDict[str, int]] = {}
        """Bytes of each measured folder by group, least recently used first."""
        self._trimmed: set[str] = set()
        """Those that keep only their newest run."""
        self._deleted: dict[Path, float] = {}
        """Folders below `DELETED`, with the time of the deletion."""
        self._is_closed = False
        self._logged = log.Once()

    def _within_file_system(self, limit: int) -> int:
        file_system = os.statvfs(next(path for path in (self._root, *self._root.absolute().parents) if path.exists()))
        most = file_system.f_blocks * file_system.f_frsize // 2
        if not 0 < most < limit:
            return limit
        self._log.info(
            "--runner-dir-limit exceeds half of the file system of the run folders; that half is the limit now",
            folder=str(self._root),
            limit=most,
        )
        return most

    def begin(self, run_dir: Path) -> None:
        """Register a run that starts to use a folder. Waits only while this folder is being removed."""
        with self._lock:
            self._lock.wait_for(lambda: run_dir not in self._claimed)
            self._busy[run_dir] += 1

    def end(self, run_dir: Path, keep: int) -> None:
        """Register the end of a run whose folder was cleared. `keep` is the number of runs that the object keeps.

        Raises OSError if a folder of which nothing is kept cannot be removed.
        """
        held = used(run_dir) if self._limit and keep != KEEP_NONE else 0
        with self._lock:
            self._busy[run_dir] -= 1
            if self._busy[run_dir] <= 0:
                del self._busy[run_dir]
            self._store(run_dir, held)
        if keep == KEEP_NONE:
            self.remove(run_dir)
        self._make_room()

    def retire(self, run_dir: Path) -> None:
        """Remove the folder of a deleted object, unless a run uses it. Its last run is kept. Raises OSError."""
        self.remove(run_dir, self._root / DELETED / run_dir.relative_to(self._root))
        self.expire()

    def expire(self) -> None:
        """Remove the runs of deleted objects that were kept for long enough, or that are too many."""
        while (run_dir := self._expired()) is not None:
            try:
                self.remove(run_dir)
            except OSError as error:
                self._give_up(run_dir, error)

    def _expired(self) -> Path | None:
        """Return a folder below `DELETED` to remove. If there are too many, the largest namespace loses its oldest."""
        with self._lock:
            groups = Counter(map(_group, self._deleted))
            group = groups.most_common(1)[0][0] if len(self._deleted) > _MOST_DELETED else ""
            candidates = [run_dir for run_dir in self._deleted if not group or _group(run_dir) == group]
            run_dir = min(candidates, key=self._deleted.__getitem__, default=None)
            if run_dir is None or not (group or time.time() - self._deleted[run_dir] > _DELETED_FOR):
                return None
            del self._deleted[run_dir]
            return run_dir

    def remove(self, run_dir: Path, kept: Path | None = None) -> None:
        """Remove a folder, unless a run uses it. With `kept`, its last run is moved there. Raises OSError."""
        with self._lock:
            self._lock.wait_for(lambda: run_dir not in self._claimed)
            if self._busy[run_dir]:
                return
            self._claimed.add(run_dir)
        try:
            if kept is not None:
                self._keep_last(run_dir, kept)
            remove(run_dir)
            with self._lock:
                self._store(run_dir, 0)
        finally:
            self._release(run_dir)

    def _keep_last(self, run_dir: Path, kept: Path) -> None:
        """Move the last run of a deleted object. If this fails, as on a full disk, it is removed with the rest."""
        if not (ident := _last_ended(run_dir)):
            return
        try:
            self.remove(kept)
            _move(run_dir, ident, kept)
        except OSError as error:
            self._log.info("Cannot keep the last run of a deleted object", folder=str(run_dir), error=str(error))
            shutil.rmtree(kept, ignore_errors=True)
            return
        held = used(kept) if self._limit else 0
        with self._lock:
            self._store(kept, held, is_trimmed=True)
            self._deleted[kept] = time.time()

    def survey(self) -> None:
        """Measure the folders that an earlier operator left, so that they count too."""
        of_deleted = {run_dir: deleted_at(run_dir) for run_dir in run_folders(self._root / DELETED)}
        with self._lock:
            self._deleted = of_deleted | self._deleted
        self.expire()
        if not self._limit:
            return
        # The latest first, because each is inserted before the folders measured so far.
        run_dirs = sorted(((_modified(run_dir), run_dir) for run_dir in run_folders(self._root)), reverse=True)
        for _, run_dir in run_dirs:
            if self._is_closed:
                return
            held = used(run_dir)
            with self._lock:
                is_measured = str(run_dir) in self._folders.get(_group(run_dir), ())
                if not is_measured and self._is_idle(run_dir):
                    self._store(run_dir, held, newest=False)
        self._make_room()

    def close(self) -> None:
        """Stop loops over many folders."""
        self._is_closed = True

    def _make_room(self) -> None:
        """Reduce folders to the limit. One thread does this at a time, for the runs that end meanwhile too."""
        with self._lock:
            if self._is_making_room or not self._limit:
                return
            self._is_making_room = True
        try:
            while (claim := self._claim_next()) is not None:
                run_dir, is_complete = claim
                try:
                    self._reduce(run_dir, is_complete=is_complete)
                except (OSError, RecursionError) as error:
                    self._give_up(run_dir, error)
                finally:
                    self._release(run_dir)
        except BaseException:
            self._is_making_room = False
            raise

    def _claim_next(self) -> tuple[Path, bool] | None:
        """Claim the folder to make smaller; return it, and whether it has older runs. None ends `_make_room`."""
        with self._lock:
            claim = self._next() if self.size > self._limit and not self._is_closed else None
            if claim is None:
                self._is_making_room = False
            else:
                self._claimed.add(claim[0])
            return claim

    def _next(self) -> tuple[Path, bool] | None:
        """Return the folder to make smaller, and whether it has older runs; None if all folders are in use."""
        deleted = str(self._root / DELETED)
        held = {group: sum(folders.values()) for group, folders in self._folders.items()}
        for group in sorted(held, key=lambda group: (not group.startswith(deleted), -held[group])):
            for is_trimmed in (False, True):
                names = (name for name in self._folders[group] if (name in self._trimmed) is is_trimmed)
                run_dir = next(filter(self._is_idle, map(Path, names)), None)
                if run_dir is not None:
                    return run_dir, not is_trimmed
        return None

    def _is_idle(self, run_dir: Path) -> bool:
        return not self._busy[run_dir] and run_dir not in self._claimed

    def _reduce(self, run_dir: Path, *, is_complete: bool) -> None:
        """Remove all runs of a folder except the newest, or the folder. Raises OSError."""
        if is_complete:
            rotate(run_dir / "artifacts", 1)
        else:
            self._log.info(
                "Removed a run folder because the disk limit is exceeded", folder=str(run_dir), limit=self._limit
            )
            remove(run_dir)
        held = used(run_dir) if is_complete else 0
        with self._lock:
            self._store(run_dir, held, is_trimmed=True)

    def _give_up(self, run_dir: Path, error: Exception) -> None:
        """Do not count a folder until the next run of its object: another user can own its files, for example."""
        with self._lock:
            self._store(run_dir, 0)
        if self._logged.is_new(run_dir):
            self._log.warning(
                "Cannot remove files of runs, which do not count for the disk limit now; remove them by hand",
                folder=str(run_dir),
                error=str(error),
            )

    def _release(self, run_dir: Path) -> None:
        with self._lock:
            self._claimed.discard(run_dir)
            self._lock.notify_all()

    def _store(self, run_dir: Path, held: int, *, is_trimmed: bool = False, newest: bool = True) -> None:
        """Store the bytes of a folder in place of earlier ones; 0: it does not count."""
        name, group = str(run_dir), _group(run_dir)
        folders = self._folders.setdefault(group, OrderedDict())
        self.size += held - folders.pop(name, 0)
        self._trimmed.discard(name)
        if held:
            folders[name] = held
            folders.move_to_end(name, last=newest)
            if is_trimmed:
                self._trimmed.add(name)
        elif not folders:
            del self._folders[group]


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


def deleted_at(run_dir: Path) -> float:
    """Return when the object of a folder below `DELETED` was deleted, in seconds since the epoch."""
    try:
        return (run_dir / _MARK).stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0


def _modified(run_dir: Path) -> int:
    try:
        return (run_dir / "artifacts").stat().st_mtime_ns
    except OSError:
        return 0


def new_ident(now: datetime) -> str:
    """Return a new name of a run. Names sort by time (UTC, microseconds) and are unique within a microsecond."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"


def point_latest(artifacts: Path, ident: str) -> None:
    """Replace the link `latest` atomically with a link to a run's folder."""
    fresh = artifacts / f".{LATEST}-{secrets.token_hex(4)}"
    fresh.symlink_to(ident)
    fresh.replace(artifacts / LATEST)


def latest(artifacts: Path) -> str:
    """Return the name of the newest run; empty if there is none."""
    with contextlib.suppress(OSError):
        return (artifacts / LATEST).readlink().name
    return ""


def rotate(artifacts: Path, keep: int) -> None:
    """Keep the newest `keep` folders, `KEEP_ALL` or `KEEP_NONE`. Remove `latest` if its target is removed."""
    if keep == KEEP_ALL:
        return
    with contextlib.suppress(FileNotFoundError):
        runs = sorted(
            (entry for entry in os.scandir(artifacts) if entry.is_dir(follow_symlinks=False)),
            key=lambda entry: (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name),
        )
        for entry in runs[: len(runs) - max(keep, 0)] if keep < len(runs) else []:
            shutil.rmtree(entry.path)
    _mend_latest(artifacts)


def discard_unfinished(artifacts: Path) -> None:
    """Remove the artifacts of a run whose operator died: values that became known later are not masked in them."""
    ident = latest(artifacts)
    if ident and not (artifacts / ident / "status").exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(artifacts / ident)
        _mend_latest(artifacts)


def _mend_latest(artifacts: Path) -> None:
    latest = artifacts / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def _last_ended(run_dir: Path) -> str:
    """Return the name of the newest run if it has ended, so that its files are masked; otherwise an empty string."""
    ident = latest(run_dir / "artifacts")
    return ident if ident and (run_dir / "artifacts" / ident / "status").is_file() else ""


def _move(run_dir: Path, ident: str, target: Path) -> None:
    """Move a run to another run folder, which does not exist. Raises OSError."""
    for folder in (*reversed(target.parents), target, target / "artifacts", target / "env"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (target / _MARK).touch(mode=0o600)
    (run_dir / "artifacts" / ident).rename(target / "artifacts" / ident)


def remove(run_dir: Path) -> None:
    """Remove the run folder of a deleted object. Also remove its namespace's folder if that is empty."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(run_dir)
    with contextlib.suppress(OSError):  # other objects still have folders, or another removal was faster
        run_dir.parent.rmdir()
