"""Received lines of a run in a pod.

A line is in the spool before it is applied. An operator that continues the run with the same run folder applies those
lines without another log line or Event. Blocking I/O of small pieces.

Promises: the lines of all runs need a limited space. A large line has a mark while it is applied. If an operator did
not survive a line, its successor finds the mark, and does not apply that line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.core.engine.run_dir import private_folder

_HEADER = struct.Struct(">QI?")
_OF_LINE = 2048
"""Bytes that each line needs beside its own: its event has a file."""


class Frame(NamedTuple):
    """A numbered frame: one line of the worker's output, or the ending (JSON, see `links.AgentEnd`)."""

    number: int
    payload: bytes
    end: bool


class Space:
    """Space for the received lines of all runs. The files of artifacts need about as much again."""

    def __init__(self, limit: int = 512 * 1024 * 1024) -> None:
        """`limit` is in bytes."""
        self._limit = limit
        self._sizes: dict[Path, int] = {}

    def set(self, path: Path, size: int) -> None:
        """Record the size of a file. Raises OSError if there is no space, and the run has more than its share."""
        share, others = self._limit // (len(self._sizes) or 1), sum(self._sizes.values()) - self._sizes.get(path, 0)
        if size > share and others + size > self._limit:
            raise OSError(errno.EDQUOT, f"the output of the run needs {size} bytes, more than its share of the space")
        self._sizes[path] = size

    def free(self, path: Path) -> None:
        """Forget a file."""
        self._sizes.pop(path, None)


class Spool:
    """Received lines of one run, by number."""

    def __init__(self, run_dir: Path, ident: str, space: Space | None = None) -> None:
        """Open the lines of a run. Those of other runs of the object, which another operator finished, are removed."""
        private_folder(run_dir)
        self._path = run_dir / f".received-{ident}"
        self._mark = run_dir / f".received-{ident}.applying"
        self._space = space or Space()
        for other in run_dir.glob(".received-*"):
            if other not in {self._path, self._mark}:
                other.unlink(missing_ok=True)
        self.marked = int(self._mark.read_text() or 0) if self._mark.exists() else 0
        """Number of the large line that is being applied, or that an earlier operator did not survive; 0: none."""
        self.last = self._cut()
        """Highest number of a complete line."""

    def _cut(self) -> int:
        """Drop an incomplete last line; return the number of the last complete one."""
        last = end = 0
        with contextlib.suppress(FileNotFoundError), self._path.open("rb+") as file:
            size = os.fstat(file.fileno()).st_size
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                number, length, _ = _HEADER.unpack(header)
                if end + _HEADER.size + length > size:
                    break
                last, end = number, file.seek(length, os.SEEK_CUR)
            file.truncate(end)
        self._space.set(self._path, end + last * _OF_LINE)
        return last

    def lines(self) -> Iterator[Frame]:
        """Yield the lines of an earlier operator, one at a time."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            number = 0
            while number < self.last and (header := file.read(_HEADER.size)):
                number, length, is_last = _HEADER.unpack(header)
                yield Frame(number, file.read(length), is_last)

    def mark(self, number: int) -> None:
        """Mark the large line that is applied now; 0: none."""
        if number:
            self._mark.write_text(str(number))
        elif self.marked:
            self._mark.unlink(missing_ok=True)
        self.marked = number

    def add(self, line: Frame) -> None:
        """Append a line, or raise OSError and leave the file as it was."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            header = _HEADER.pack(line.number, len(line.payload), line.end)
            self._space.set(self._path, size + len(header) + len(line.payload) + line.number * _OF_LINE)
            if os.writev(descriptor, (header, line.payload)) != len(header) + len(line.payload):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "a line could not be written whole", str(self._path))
            self.last = line.number
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the files."""
        for path in (self._path, self._mark):
            path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Count the lines no longer."""
        self._space.free(self._path)
