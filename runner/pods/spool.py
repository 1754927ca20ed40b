"""Received lines of a run in a pod.

A line is in the spool before it is applied. An operator that continues the run with the same run folder applies those
lines without another log line or Event. Blocking I/O of small pieces.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.engine.run_dir import private_folder

_HEADER = struct.Struct(">QI?")


class Frame(NamedTuple):
    """A numbered frame: one line of the worker's output, or the ending (JSON, see `links.Ending`)."""

    number: int
    payload: bytes
    end: bool


class Spool:
    """Received lines of one run, by number."""

    def __init__(self, run_dir: Path, ident: str) -> None:
        """Open the lines of a run. Those of other runs of the object, which another operator finished, are removed."""
        private_folder(run_dir)
        self._path = run_dir / f".received-{ident}"
        for other in run_dir.glob(".received-*"):
            if other != self._path:
                other.unlink(missing_ok=True)

    def lines(self) -> Iterator[Frame]:
        """Yield the complete lines of an earlier operator, and drop an incomplete last one."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb+") as file:
            end = 0
            while header := file.read(_HEADER.size):
                if len(header) < _HEADER.size:
                    break
                number, length, is_last = _HEADER.unpack(header)
                content = file.read(length)
                if len(content) < length:
                    break
                end = file.tell()
                yield Frame(number, content, is_last)
            file.truncate(end)

    def add(self, line: Frame) -> None:
        """Append a line, or raise OSError and leave the file as it was."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            header = _HEADER.pack(line.number, len(line.payload), line.end)
            if os.writev(descriptor, (header, line.payload)) != len(header) + len(line.payload):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "a line could not be written whole", str(self._path))
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
