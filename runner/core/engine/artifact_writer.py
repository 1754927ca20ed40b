"""Artifacts of a run, which the operator writes from masked events, with the layout of ansible-runner.

Files: `job_events/<counter>-<uuid>.json`, `stdout`, `stderr`, `status`, `rc`; for processes also `command` and
`fact_cache/`, for pods `pod`. Source:
https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifacts-directory-hierarchy

Promises:

- A file contains no value that was known when it was written. If values became known later, the files are masked again
  when the run ends. If they may contain unknown values, they are removed then.
- Writing delays neither the event loop nor the run: a thread writes all events that have arrived meanwhile.
- A problem, such as a full disk, is logged once, and the run continues without the rest of its files.

Links that a role lays are not followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from runner.base import log
from runner.base.config import atomic_file
from runner.core.engine import artifacts, redaction
from runner.core.engine.job import Event, Job
from runner.core.engine.output import STDOUT
from runner.core.engine.run_dir import private_folder
from runner.core.masking.masker import TOO_SLOW, Budget, SearchTimeoutError
from runner.values.errors import EngineError

_ORDINARY = re.compile(r"[0-9A-Za-z-]{1,64}")
_BATCH = 0.2
"""Seconds in which events are collected."""
_MOST_WAITING = 4 << 20
"""Bytes of events at which the run waits for the thread that writes."""
_SECONDS = 20.0
"""CPU time for masking all files of a run again."""
_PIECE = 4 << 20
_EVENTS = "job_events"
_log = log.get(__name__)


class ArtifactWriter:
    """Artifacts of one run."""

    def __init__(self, job: Job, files: Mapping[str, str]) -> None:
        """`files` are written before the first event."""
        self._job = job
        self._secrets = job.secrets
        self._folder = job.run_dir / "artifacts" / job.ident
        self._files = {"stderr": "", **files}
        self._events: list[tuple[str, bytes, str]] = []
        """File name, content and output of events that are not written yet."""
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._may_hold_unknown = False
        self.is_broken = False
        """True after a problem, such as a full disk."""

    async def add(self, event: Event) -> None:
        """Write a masked event soon."""
        data, text = redaction.dump(event), str(event.get("stdout") or "")
        counter, uuid = event.get("counter"), str(event.get("uuid"))
        is_ordinary = isinstance(counter, int) and counter > 0 and _ORDINARY.fullmatch(uuid)
        shown = f"{text}\n" if text or event.get("event") == "verbose" else ""
        self._events.append((f"{counter}-{uuid}.json" if is_ordinary else "", data, shown))
        self._size += len(data)
        self._may_hold_unknown = self._may_hold_unknown or not self._secrets.is_exhausted
        if self._size > _MOST_WAITING:
            await self._write(self._writing)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH, self._start)

    async def end(self, files: Mapping[str, str], source: Path | None) -> None:
        """Write the remaining events and these files, after all processes of the run have ended.

        `source` is the folder of ansible-runner, whose other files are masked and copied.
        """
        events = await self._collect(self._writing)

        def finish() -> None:
            self._append(events)
            self._finish(files, source)

        await asyncio.to_thread(self._guarded, finish)

    async def begin(self) -> None:
        """Create the folder."""
        await asyncio.to_thread(self._guarded, self._make)

    def _start(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write(self._writing))

    async def _write(self, before: asyncio.Task[None] | None) -> None:
        if events := await self._collect(before):
            await asyncio.to_thread(self._guarded, lambda: self._append(events))

    async def _collect(self, before: asyncio.Task[None] | None) -> Sequence[tuple[str, bytes, str]]:
        """Return the events that are not written, after those before them are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if before is not None:
            await before
        events, self._events, self._size = self._events, [], 0
        return events

    # In a thread.

    def _guarded(self, work: Callable[[], None]) -> None:
        if self.is_broken:
            return
        try:
            work()
        except (OSError, EngineError) as error:
            self.is_broken = True
            about = {"job": self._job.ident, "gvk": str(self._job.gvk), **self._job.key._asdict()}
            _log.warning("Cannot write the artifacts of a run", error=str(error), **about)

    def _make(self) -> None:
        root = self._folder.parent
        for path in (root, self._folder, self._folder / _EVENTS):
            private_folder(path)
        for name, content in self._files.items():
            atomic_file.write(self._folder / name, content)
        _write(f"{self._folder}/{STDOUT}", b"", os.O_APPEND)
        artifacts.point_latest(root, self._job.ident)

    def _append(self, events: Sequence[tuple[str, bytes, str]]) -> None:
        for name, data, _ in events:
            if name:
                _write(f"{self._folder}/{_EVENTS}/{name}", data, os.O_TRUNC)
        if text := "".join(shown for _, _, shown in events):
            _write(f"{self._folder}/{STDOUT}", text.encode(errors="replace"), os.O_APPEND)

    def _finish(self, files: Mapping[str, str], source: Path | None) -> None:
        secrets, budget = self._secrets, Budget(_SECONDS)
        if secrets.is_exhausted and self._may_hold_unknown:
            for path in (self._folder / _EVENTS).iterdir():
                path.unlink()
            atomic_file.write(self._folder / STDOUT, f"{secrets.withheld}\n")
        elif secrets.has_learned:
            for path in (self._folder / _EVENTS).iterdir():
                self._mask_event(path, budget)
            self._mask_stdout(budget)
        if source is not None and not secrets.is_exhausted:
            self._copy(source, budget)
        for name, content in files.items():
            atomic_file.write(self._folder / name, content)

    def _mask_event(self, path: Path, budget: Budget) -> None:
        """Mask an event that was written before all values were known. Remove it if there is no time to search it."""
        try:
            data = _read(path)
            shown = redaction.json_file(data, self._secrets, budget, is_event=True)
        except (SearchTimeoutError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        if shown is not data:
            atomic_file.write(path, [shown])

    def _mask_stdout(self, budget: Budget) -> None:
        path, masker = self._folder / STDOUT, self._secrets.masker
        try:
            if any(masker.finds(piece, budget) for piece in _pieces(path)):
                atomic_file.write(path, (masker.data(piece, budget) for piece in _pieces(path)))
        except SearchTimeoutError:
            atomic_file.write(path, f"{TOO_SLOW}\n")

    def _copy(self, source: Path, budget: Budget) -> None:
        """Copy the files of ansible-runner that do not consist of events."""
        facts = source / "fact_cache"
        for path in (source / "command", *(facts.iterdir() if facts.is_dir() else ())):
            with contextlib.suppress(FileNotFoundError, SearchTimeoutError):  # then it is not kept
                shown = redaction.json_file(_read(path), self._secrets, budget)
                target = self._folder / path.relative_to(source)
                private_folder(target.parent)
                atomic_file.write(target, [shown])


def _read(path: Path) -> bytes:
    """Return the content of a regular file. Raises FileNotFoundError for another one."""
    return b"".join(_pieces(path))


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield complete lines of a regular file. Raises FileNotFoundError for another one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(path) from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(path)
        while piece := file.read(_PIECE):
            yield piece + file.readline()


def _write(path: str, data: bytes, flag: int) -> None:
    """Write a file so that it is complete, or as before, when this function returns. Raises OSError.

    The file has its final name from the start, because renaming costs as much as creating it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flag, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        try:
            written = file.write(data)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        if written != len(data):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "the file could not be written whole", path)
