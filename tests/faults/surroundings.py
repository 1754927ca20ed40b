"""A small disk and a clock that jumps: what surrounds a process and can fail it.

The disk is a tmpfs where this user may mount one; else what fails is the size of files (RLIMIT_FSIZE of the live
process), which a process meets in the same calls. The clock is a library that is preloaded before libc, made by the C
compiler of this machine; without one there is no clock.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SIZE = 48 << 20
_PIECE = b"\0" * (1 << 20)
_SMALL_FILE = 64


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder on a disk that can be full."""

    folder: Path
    mounted: bool

    def fill(self, pid: int) -> None:
        """Leave no room, for the process `pid` at least."""
        if not self.mounted:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE, hard))
            return
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_PIECE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def empty(self, pid: int) -> None:
        """Make room."""
        (self.folder / "filler").unlink(missing_ok=True)
        if not self.mounted:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def remove(self) -> None:
        """Take it away."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)


def disk(folder: Path) -> Disk:
    """Mount one where that is allowed."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "faults", str(folder)]
    mounted = (
        shutil.which("mount") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )
    return Disk(folder, mounted)


class Clock:
    """The wall clock of processes with its `environment`."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(file)}
        with file.open("r+b") as opened:
            self._offset = mmap.mmap(opened.fileno(), 8)

    def jump(self, seconds: int) -> None:
        """Let it be this many seconds ahead of the true time."""
        self._offset[:] = struct.pack("q", seconds)


def clock(folder: Path) -> Clock | None:
    """Make one; None where there is no C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    library = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return Clock(library, folder / "clock")
