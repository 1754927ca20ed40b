"""Processes of a cluster.

Promises: components are killed when their supervisor exits, however it exits. Two mechanisms ensure this. On Linux, the
kernel kills a component when its parent exits (`leash.py`). On all systems, a guard detects the exit: a shell that
reads from a pipe. When the supervisor's end of the pipe is closed, it kills all process groups and deletes the
cluster's files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = frozenset({"cpu", "cpuset", "hugetlb", "memory", "pids"})
"""Controllers that the kubelet uses (pkg/kubelet/cm/cgroup_v2_manager_linux.go)."""
_LEASH = Path(__file__).with_name("leash.py")
# Reads the ids of the process groups, a line for each change. At the end of the pipe it kills them.
# Then it removes the cgroups of pods, which the kernel permits as soon as their processes have exited, and the files.
_GUARD = """
while read -r line; do groups=$line; done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
attempts=100
while [ -n "$CGROUP" ] && [ "$attempts" -gt 0 ]; do
    find /sys/fs/cgroup/$CGROUP /sys/fs/cgroup/*/$CGROUP -depth -type d -exec rmdir {} + 2>/dev/null
    [ -n "$(find /sys/fs/cgroup/$CGROUP /sys/fs/cgroup/*/$CGROUP -prune 2>/dev/null)" ] || break
    attempts=$((attempts - 1))
    sleep 0.05
done
rm -rf -- "$@"
"""


@dataclass(slots=True)
class Component:
    """One component of the control plane, and its process if it has one."""

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    options: tuple[str, ...] = ()
    """Options of `leash.py`."""
    path: str = ""
    """Folders that are appended to PATH."""
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
        environ = environment(os.environ)
        if self.path:
            environ["PATH"] = os.pathsep.join(filter(None, (environ.get("PATH"), self.path)))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                leashed(*self.options, *self.command),
                cwd=self.folder,
                env=environ,
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
    def start(cls, to_delete: Sequence[Path], cgroup: str = "") -> Self:
        """Start the guard; `to_delete` are the files and folders to delete, `cgroup` the cgroup of pods to remove."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", *map(str, to_delete)],
            cwd="/",
            env={**os.environ, "CGROUP": cgroup},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        if process.stdin is None:  # pragma: no cover - for the type checker; PIPE is set
            raise AssertionError
        return cls(process, process.stdin)

    def send_groups(self, groups: Iterable[int | None]) -> None:
        """Send the ids of the current process groups; None is a group that has ended."""
        self.pipe.write(f"{' '.join(str(group) for group in groups if group is not None)}\n".encode())
        self.pipe.flush()

    def finish(self) -> None:
        """Run the cleanup and wait for it."""
        self.pipe.close()
        self.process.wait()


def cgroups(name: str, root: Path = CGROUPS) -> list[Path]:
    """Return the folders of a cgroup: one in each hierarchy of version 1, or the one of version 2."""
    hierarchies = [procs.parent for procs in root.glob("*/cgroup.procs")] if (root / "memory").is_dir() else [root]
    return [hierarchy / name for hierarchy in hierarchies]


def create_cgroups(name: str, root: Path = CGROUPS) -> None:
    """Create a cgroup. With version 2, it gets the controllers without which the kubelet does not accept it.

    Raises:
        OSError: the kernel does not permit it.
    """
    for folder in cgroups(name, root):
        folder.mkdir(exist_ok=True)
    if missing := missing_controllers(root):
        (root / "cgroup.subtree_control").write_text(
            " ".join(f"+{controller}" for controller in missing), encoding="ascii"
        )


def missing_controllers(root: Path = CGROUPS) -> list[str]:
    """Return the controllers of version 2 that the kubelet requires, and that cgroups in `root` do not have yet."""
    try:
        available, enabled = (
            set((root / f"cgroup.{name}").read_text(encoding="ascii").split())
            for name in ("controllers", "subtree_control")
        )
    except FileNotFoundError:
        return []  # version 1
    return sorted(_CONTROLLERS & available - enabled)


def remove_cgroups(name: str) -> None:
    """Remove a cgroup and the ones in it, if a killed supervisor left them; those with processes remain."""
    for folder in cgroups(name):
        for subfolder in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                subfolder.rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()


def leashed(*command: str) -> list[str]:
    """Return a command that is killed when this process exits; it may begin with options of `leash.py`."""
    return [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *command]


def end(process: subprocess.Popen[str], within: float) -> None:
    """Terminate a process and wait for it; kill it if it does not exit in this many seconds."""
    process.terminate()
    await_end(process, within)


def await_end(process: subprocess.Popen[str], within: float) -> None:
    """Wait for the end of a process; kill it if it does not exit in this many seconds."""
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
