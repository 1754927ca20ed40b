"""Processes of one cluster: started on a leash, watched by a guard, ended for sure.

Promises: a component dies with the supervisor that started it, however that ends. Two things see to it, and each alone
is enough on Linux: the kernel kills a component when its parent dies (`leash.py`), and a guard, a shell that waits at a
pipe from the supervisor, kills all process groups and removes the cluster's files when the pipe breaks. Elsewhere the
guard does it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

_LEASH = Path(__file__).with_name("leash.py")
# Reads the process groups of the moment, a line of ids each time they change; at the end of the pipe ends them.
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
        """The id of the living process."""
        return self.process.pid if self.process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Say whether a process lives (a paused one does)."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process, in a process group of its own."""
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
        """End the process group now and reap the process."""
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
    """A shell that outlives the supervisor by a moment, to clean up behind it."""

    process: subprocess.Popen[bytes]
    pipe: IO[bytes]

    @classmethod
    def start(cls, doomed: Sequence[Path]) -> Self:
        """Start the guard; `doomed` are the files and folders to remove at the end."""
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

    def tell(self, components: Sequence[Component]) -> None:
        """Say which process groups are alive now."""
        groups = " ".join(str(component.pid) for component in components if component.alive)
        self.pipe.write(f"{groups}\n".encode())
        self.pipe.flush()

    def finish(self) -> None:
        """Let the guard do its work, and wait for it."""
        self.pipe.close()
        self.process.wait()


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return what components see of our environment.

    Only what programs need: commands of `kubectl exec` see it too, and no secret of the user should be there.
    """
    passed = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
    return {name: ours[name] for name in passed if name in ours}
