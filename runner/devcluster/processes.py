"""Processes of a cluster.

Promises: components are killed when their supervisor exits, however it exits. Two mechanisms ensure this. On Linux, the
kernel kills a component when its parent exits (`leash.py`). On all systems, a guard detects the exit: a shell that
reads from a pipe. When the supervisor's end of the pipe is closed, it kills all process groups and deletes the
cluster's files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

_LEASH = Path(__file__).with_name("leash.py")
# Reads the ids of the process groups, a line for each change. At the end of the pipe it kills them.
_GUARD = """
while read -r line; do groups=$line; done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
rm -rf -- "$@"
"""


@dataclass(slots=True)
class Component:
    """One component of the control plane, and its process if it has one."""

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = False

    @property
    def pid(self) -> int | None:
        """The id of the process, None if it does not run."""
        return self.process.pid if self.process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """True if the process exists, paused or not."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process in a new process group."""
        self.wanted = True
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *self.command],
                cwd=self.folder,
                env=environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill the process group and reap the process."""
        self.wanted = False
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def last_lines(self, count: int = 15) -> str:
        """Return the end of the log, for an error message."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(f"  {line}" for line in lines[-count:])


@dataclass(frozen=True, slots=True)
class Guard:
    """A shell that kills process groups and deletes files after this process has exited."""

    process: subprocess.Popen[bytes]
    pipe: IO[bytes]

    @classmethod
    def start(cls, doomed: Sequence[Path]) -> Self:
        """Start the guard; `doomed` are the files and folders to delete."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", *map(str, doomed)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        if process.stdin is None:  # pragma: no cover - for the type checker; PIPE was asked for
            raise AssertionError
        return cls(process, process.stdin)

    def tell(self, groups: Iterable[int | None]) -> None:
        """Send the ids of the current process groups; None is a group that has ended."""
        self.pipe.write(f"{' '.join(str(each) for each in groups if each is not None)}\n".encode())
        self.pipe.flush()

    def finish(self) -> None:
        """Run the cleanup and wait for it."""
        self.pipe.close()
        self.process.wait()


def end(process: subprocess.Popen[str], within: float) -> None:
    """Terminate a process and wait for it; kill it if it does not exit in this many seconds."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of components.

    It contains no secrets of the user, because commands of `kubectl exec` inherit it.
    """
    passed = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
    return {name: ours[name] for name in passed if name in ours}
