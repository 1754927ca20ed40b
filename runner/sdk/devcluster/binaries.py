"""Programs of the control plane: search, download and build.

The search order for each program is: the folder in `KUBEBUILDER_ASSETS`; the cache folder of the user; an official
release; a build with Go. A program is written to the cache atomically, so that an interrupted build can be resumed. A
lock ensures that only one process builds at a time. A truncated program does not count.

Raises `ClusterError` with each source that was tried, and the next step.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner.base.config import locks
from runner.sdk.devcluster import folders
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError

KUBERNETES, ETCD, KWOK = "v1.35.4", "v3.6.5", "v0.7.0"
MODULES = Path(__file__).with_name("modules")
"""Folder of the Go modules of the programs."""
ASSETS = "KUBEBUILDER_ASSETS"
_NEW = ".new-"
_HEAD = 4096
"""Bytes that contain the header of a program, and its table of segments."""
_ELF_HEADER = 64
"""Size in bytes."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the folder of its Go module, its package, and variables set at link time."""

    name: str
    module: Path
    package: str
    variables: tuple[tuple[str, str], ...] = ()


_VERSION = "k8s.io/component-base/version"
_KUBERNETES_VARIABLES = (
    (f"{_VERSION}.gitVersion", KUBERNETES),
    (f"{_VERSION}.gitMajor", "1"),
    (f"{_VERSION}.gitMinor", "35"),
    (f"{_VERSION}.gitTreeState", "clean"),
)


def _of_kubernetes(*names: str) -> tuple[Program, ...]:
    module = MODULES / "kubernetes"
    return tuple(Program(name, module, f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_VARIABLES) for name in names)


PROGRAMS = (
    Program("etcd", MODULES / "kubernetes", "go.etcd.io/etcd/server/v3"),
    *_of_kubernetes("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    Program("kwok", MODULES / "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)
NODE_PROGRAMS = _of_kubernetes("kubelet", "kube-proxy")


@dataclass(frozen=True, slots=True)
class Toolset:
    """Programs that share a folder in the cache."""

    what: str
    versions: str
    """The name of the folder, so that each version has a separate one."""
    programs: tuple[Program, ...]


CONTROL_PLANE = Toolset("control plane", f"kubernetes-{KUBERNETES}_etcd-{ETCD}_kwok-{KWOK}", PROGRAMS)
NODE_KIT = Toolset("real node", f"kubernetes-node-{KUBERNETES}", NODE_PROGRAMS)


@dataclass(frozen=True, slots=True)
class Target:
    """Operating system and architecture, as in GOOS and GOARCH."""

    system: str
    machine: str

    def __str__(self) -> str:
        """Return the form in the names of releases."""
        return f"{self.system}-{self.machine}"


class UnavailableError(Exception):
    """Error of a source that cannot provide the program; the next source is tried."""


class ProgramSource(Protocol):
    """A source of programs: releases, or a build."""

    def fetch(self, program: Program, target: Target, file: Path, progress: Progress, /) -> None:
        """Write the program to `file`. Raises UnavailableError to try the next source, or ClusterError to stop."""


def this_machine() -> Target:
    """Return the target of this machine."""
    machines = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    machine = platform.machine()
    return Target(sys.platform, machines.get(machine, machine))


def cache_folder(environ: Mapping[str, str], target: Target, kit: Toolset) -> Path:
    """Return the cache folder of a toolset."""
    return folders.binaries(environ) / f"{kit.versions}_{target}"


def find(environ: Mapping[str, str], target: Target, kit: Toolset) -> Mapping[str, Path]:
    """Return the installed programs."""
    places = [cache_folder(environ, target, kit)]
    if environ.get(ASSETS):
        places.insert(0, Path(environ[ASSETS]).absolute())
    installed = {}
    for program in kit.programs:
        for place in places:
            if os.access(place / program.name, os.X_OK) and _is_whole(place / program.name):
                installed[program.name] = place / program.name
                break
    return installed


def _is_whole(file: Path) -> bool:
    """Return False for a truncated or empty file, as after a full disk. Reads only the header (elf(5))."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    if head[:4] != b"\x7fELF":
        return head[:1] not in {b"", b"\0"}
    table, size, number = (int.from_bytes(head[at : at + width], "little") for at, width in ((32, 8), (54, 2), (56, 2)))
    segments = (head[table + size * index :] for index in range(number))
    ends = (sum(int.from_bytes(segment[at : at + 8], "little") for at in (8, 32)) for segment in segments)
    return file.stat().st_size >= max([_ELF_HEADER, *ends])


def provide(
    environ: Mapping[str, str],
    sources: Sequence[ProgramSource],
    progress: Progress,
    kit: Toolset,
) -> Mapping[str, Path]:
    """Return all programs; download or build missing ones from `sources`, in this order."""
    target = this_machine()
    installed = find(environ, target, kit)
    if len(installed) == len(kit.programs):
        return installed
    folder = cache_folder(environ, target, kit)

    def waiting() -> None:
        holder = locks.FileLock(folder / "lock").holder()
        process = f"process {holder}" if holder else "another process"
        there = f"{len(find(environ, target, kit))} of {len(kit.programs)}"
        progress.note(f"Waiting for {process}, which gets the programs of the {kit.what}: {there} are there")

    with locks.locked(folder / "lock", waiting):
        installed = find(environ, target, kit)
        missing = [program for program in kit.programs if program.name not in installed]
        for leftover in folder.glob(f"{_NEW}*"):  # by a process that was killed
            shutil.rmtree(leftover)
        if missing:
            progress.note(
                f"Programs missing or incomplete for the {kit.what}: {', '.join(program.name for program in missing)}. "
                f"Downloading or building them into {folder} (once; a build takes some minutes)",
            )
        for number, program in enumerate(missing, start=1):
            with progress.step(f"{program.name} ({number} of {len(missing)})"):
                _get(program, target, kit, folder, sources, progress)
    return find(environ, target, kit)


def _get(
    program: Program, target: Target, kit: Toolset, folder: Path, sources: Sequence[ProgramSource], progress: Progress
) -> None:
    reasons = []
    for source in sources:
        with tempfile.TemporaryDirectory(dir=folder, prefix=_NEW) as new:
            file = Path(new) / program.name
            try:
                source.fetch(program, target, file, progress)
            except UnavailableError as error:
                reasons.append(str(error))
                continue
            file.chmod(0o755)
            file.replace(folder / program.name)
            return
    ways = "".join(f"\n  - {reason}" for reason in (f"{folder}: not found", *reasons))
    raise ClusterError(
        f"cannot find, download or build {program.name} for {target}:\n  - {ASSETS}: not set, or not found{ways}\n"
        "Install Go (https://go.dev/dl/), allow access to the network, or set "
        f"{ASSETS} to a folder that contains {', '.join(p.name for p in kit.programs)}.",
    )
