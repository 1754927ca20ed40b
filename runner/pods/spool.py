"""Files of a run in a pod: the received lines, and the artifacts that other parts of the operator read.

A line is in the spool before it is applied. An operator that continues the run with the same run folder applies those
lines without another log line or Event. Artifacts have the layout of ansible-runner, and contain masked events only.
Blocking I/O of small pieces.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.config import atomic_file
from runner.engine import artifacts
from runner.engine.job import Event
from runner.engine.output import JOB_OF_POD, STDOUT
from runner.engine.run_dir import private_folder

_HEADER = struct.Struct(">QI?")
_ORDINARY = re.compile(r"[0-9A-Za-z-]{1,64}")


class Line(NamedTuple):
    """A line of the worker; the last one is the agent's report of its end."""

    number: int
    content: bytes
    is_last: bool


class Spool:
    """Received lines of one run, by number."""

    def __init__(self, run_dir: Path, ident: str) -> None:
        """Open the lines of a run. Those of other runs of the object, which another operator finished, are removed."""
        private_folder(run_dir)
        self._path = run_dir / f".received-{ident}"
        for other in run_dir.glob(".received-*"):
            if other != self._path:
                other.unlink(missing_ok=True)

    def lines(self) -> Iterator[Line]:
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
                yield Line(number, content, is_last)
            file.truncate(end)

    def add(self, line: Line) -> None:
        """Append a line."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.writev(descriptor, (_HEADER.pack(line.number, len(line.content), line.is_last), line.content))
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


class Artifacts:
    """Artifacts of one run."""

    def __init__(self, run_dir: Path, ident: str, job: str) -> None:
        """`job` is `namespace/name`."""
        folder = run_dir / "artifacts"
        self._folder = folder / ident
        for path in (run_dir / "env", folder, self._folder, self._folder / "job_events"):
            private_folder(path)
        atomic_file.write(run_dir / "env" / "envvars", "{}")  # by which folders of runs are found
        atomic_file.write(self._folder / JOB_OF_POD, job)
        artifacts.point_latest(folder, ident)

    def add(self, event: Event) -> None:
        """Write a masked event."""
        counter, uuid = event.get("counter"), str(event.get("uuid"))
        if isinstance(counter, int) and counter > 0 and _ORDINARY.fullmatch(uuid):
            atomic_file.write(self._folder / "job_events" / f"{counter}-{uuid}.json", json.dumps(event))
        if text := str(event.get("stdout") or ""):
            with (self._folder / STDOUT).open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")

    def end(self, status: str, code: int | None) -> None:
        """Write how the run ended."""
        atomic_file.write(self._folder / "status", status)
        atomic_file.write(self._folder / "rc", str(1 if code is None else code))
