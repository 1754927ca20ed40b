"""The programs of the control plane, and those for who tests with it: where they are looked for, how they get there.

In this order, for each program by itself: the folder that `KUBEBUILDER_ASSETS` names; our folder in the user's cache;
an official release; a build by Go. What is loaded or built appears in the cache whole or not at all, so that an
interrupted build goes on where it stopped; a lock lets one process do it while others wait for the result.

Errors: `ClusterError` that names each place and says what to do.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner.devcluster import folders, locks
from runner.devcluster.progress import Progress
from runner.errors import ClusterError

KUBERNETES, ETCD, KWOK, HELM = "v1.35.4", "v3.6.5", "v0.7.0", "v3.20.2"
ACTIONLINT = "v1.7.12"
ASSETS = "KUBEBUILDER_ASSETS"


@dataclass(frozen=True, slots=True)
class Program:
    """One program and where its source is: a module in `modules/`, the package in it, variables set at link time."""

    name: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()


_VERSION = "k8s.io/component-base/version"
_KUBERNETES_VARIABLES = (
    (f"{_VERSION}.gitVersion", KUBERNETES),
    (f"{_VERSION}.gitMajor", "1"),
    (f"{_VERSION}.gitMinor", "35"),
    (f"{_VERSION}.gitTreeState", "clean"),
)
PROGRAMS = (
    Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
    *(
        Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_VARIABLES)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)


@dataclass(frozen=True, slots=True)
class Toolset:
    """Programs that are got and kept together."""

    what: str
    versions: str
    """What their folder is named after: others have another one, so none is ever taken for another."""
    programs: tuple[Program, ...]


CONTROL_PLANE = Toolset("control plane", f"kubernetes-{KUBERNETES}_etcd-{ETCD}_kwok-{KWOK}", PROGRAMS)
HELM_KIT = Toolset(
    "helm client",
    f"helm-{HELM}",
    (Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", (("helm.sh/helm/v3/internal/version.version", HELM),)),),
)
ACTIONLINT_KIT = Toolset(
    "GitHub workflow linter",
    f"actionlint-{ACTIONLINT}",
    (Program("actionlint", "actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),),
)


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that the programs are for, in Go's words."""

    system: str
    machine: str

    def __str__(self) -> str:
        """Return the form that names of releases use."""
        return f"{self.system}-{self.machine}"


class UnavailableError(Exception):
    """This way to a program is closed here; the message says why, the next way is tried."""


class ProgramSource(Protocol):
    """A way to get a program that is not on this machine yet."""

    def fetch(self, program: Program, target: Target, file: Path, progress: Progress, /) -> None:
        """Write the program to `file`. Raises UnavailableError, or ClusterError where trying further is senseless."""


def this_machine() -> Target:
    """Return what the programs must be for."""
    machines = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    machine = platform.machine()
    return Target(sys.platform, machines.get(machine, machine))


def cache_folder(environ: Mapping[str, str], target: Target, kit: Toolset) -> Path:
    """Return the folder of a kit's programs."""
    return folders.binaries(environ) / f"{kit.versions}_{target}"


def find(environ: Mapping[str, str], target: Target, kit: Toolset) -> Mapping[str, Path]:
    """Return those programs that are on this machine already."""
    places = [cache_folder(environ, target, kit)]
    if environ.get(ASSETS):
        places.insert(0, Path(environ[ASSETS]).absolute())
    found = {}
    for program in kit.programs:
        for place in places:
            if os.access(place / program.name, os.X_OK):
                found[program.name] = place / program.name
                break
    return found


def provide(
    environ: Mapping[str, str],
    sources: Sequence[ProgramSource],
    progress: Progress,
    kit: Toolset,
) -> Mapping[str, Path]:
    """Return all programs; get what is missing, in the given order of sources."""
    target = this_machine()
    found = find(environ, target, kit)
    if len(found) == len(kit.programs):
        return found
    folder = cache_folder(environ, target, kit)
    with locks.locked(folder / "lock", _Waiting(progress, kit)):
        found = find(environ, target, kit)
        missing = [program for program in kit.programs if program.name not in found]
        if missing:
            progress.note(
                f"Programs missing for the {kit.what}: {', '.join(program.name for program in missing)}. "
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
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as new:
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


class _Waiting:
    """Says once that another process is at it, then now and then that it still is."""

    def __init__(self, progress: Progress, kit: Toolset) -> None:
        self._progress = progress
        self._kit = kit
        self._said = False

    def __call__(self) -> None:
        if not self._said:
            self._progress.note(f"Waiting for another process that gets the programs of the {self._kit.what}")
            self._said = True
