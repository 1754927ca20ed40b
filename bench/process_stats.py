"""What `/proc` (proc(5)) says of one process, its children left out."""

from __future__ import annotations

from pathlib import Path

_MIB = 1024.0
"""Kibibytes, which `/proc` counts in."""


def resident(pid: int) -> float:
    """Return the memory that is mapped and present, in MiB: each shared page counts whole."""
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup"), "Rss") / _MIB


def proportional(pid: int) -> float:
    """Return the same, with a page that several processes share counted in parts."""
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / _MIB


def forget_peak(pid: int) -> None:
    """Let `peak` begin anew, from what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak(pid: int) -> float:
    """Return the most memory that was resident at any time since `forget_peak`, in MiB; the kernel itself notes it."""
    return _kibibytes(Path(f"/proc/{pid}/status"), "VmHWM") / _MIB


def cpu_seconds(pid: int) -> float:
    """Return how long the threads that live now have run so far; the kernel counts nanoseconds here."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_bytes().split()[0]) for thread in threads) / 1e9


def _kibibytes(file: Path, name: str) -> int:
    for line in file.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(f"{file} has no {name}: figures of memory need Linux 4.14 or later")
