"""Namespaces of a cluster with a real node: network, mounts and processes.

Run as a script: `namespaces.py FOLDER READY ADDRESS [SOURCE=TARGET...]`. It creates the namespaces, prepares them,
writes the file READY, and stays. When it exits, the kernel ends all processes in them, and removes the mounts,
interfaces and firewall rules with the last one. Its child is the first process there, which reaps orphans. If READY is
empty, it exits as soon as the namespaces are prepared.

- Network: only the loopback interface, which also has ADDRESS, the address of the node. Nothing leads outside.
- Mounts: writes to /run, /var/log and /var/lib are kept in memory and not visible outside. SOURCE is mounted on TARGET.

Must import only the standard library and its neighbour `leash`: it runs with `python -I -S`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.sdk.devcluster import leash
else:
    sys.path.insert(0, str(Path(__file__).parent))  # `-I` leaves it out
    import leash

_NEW_MOUNTS, _NEW_NETWORK, _NEW_PROCESSES = 0x20000, 0x40000000, 0x20000000  # unshare(2)
_BIND, _RECURSIVE, _PRIVATE, _SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20  # mount(2)
_SHIELDED = ("/run", "/var/log", "/var/lib")


def main(arguments: Sequence[str]) -> int:
    """Create the namespaces and wait until their first process exits."""
    folder, ready, address, *binds = arguments
    leash.call("unshare", _NEW_MOUNTS | _NEW_NETWORK | _NEW_PROCESSES)
    return leash.in_child(lambda: first_process(Path(folder), ready, address, binds))


def first_process(folder: Path, ready: str, address: str, binds: Sequence[str]) -> None:
    """Prepare the namespaces and reap orphans forever, or until they are prepared if `ready` is empty."""
    try:
        mount_all(folder, binds)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for command in ("ip link set lo up", f"ip address add {address}/32 dev lo"):
            subprocess.run(command.split(), check=True)
        if not ready:
            return
        Path(ready).touch()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"cannot prepare the namespaces: {error}\n")
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    while True:
        signal.pause()


def mount_all(folder: Path, binds: Sequence[str]) -> None:
    """Mount what the node needs."""
    mount("none", "/", flags=_RECURSIVE | _PRIVATE)
    ours = os.open(folder, os.O_PATH)
    cgroups = os.open("/sys/fs/cgroup", os.O_PATH)
    private = folder / "run" / "private"
    private.mkdir()
    mount("tmpfs", private, kind="tmpfs", data="mode=0755")
    for shielded in _SHIELDED:
        shield(private, os.path.realpath(shielded))
    folder.mkdir(parents=True, exist_ok=True)
    mount(f"/proc/self/fd/{ours}", folder, flags=_BIND)  # it may be in a shielded folder
    mount("sysfs", "/sys", kind="sysfs")
    mount(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup", flags=_BIND | _RECURSIVE)
    mount("proc", "/proc", kind="proc")
    for bind in binds:
        source, _, target = bind.partition("=")
        for path in (source, target):
            Path(path).mkdir(parents=True, exist_ok=True)
        mount(source, target, flags=_BIND)
    mount("none", "/", flags=_RECURSIVE | _SHARED)  # volumes may request propagation


def shield(private: Path, shielded: str) -> None:
    """Mount an overlay: programs read the machine's files, and write to memory."""
    name = shielded.strip("/").replace("/", "-")
    os.chdir(private)  # short relative paths, without characters that the options cannot contain
    Path(f"{name}-upper").mkdir(mode=0o755)
    Path(f"{name}-work").mkdir()
    mount("overlay", shielded, kind="overlay", data=f"lowerdir={shielded},upperdir={name}-upper,workdir={name}-work")
    os.chdir("/")


def mount(source: str, target: str | Path, *, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """Mount a file system or a folder."""
    leash.call("mount", source.encode(), str(target).encode(), kind.encode(), flags, data.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
