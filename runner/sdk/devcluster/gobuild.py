"""Programs built with Go, from the modules in `modules/`, whose go.sum pins all dependencies.

A build ends with this process, however this process exits: a guard kills Go and its compilers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.sdk.devcluster.binaries import Program, Target, UnavailableError
from runner.sdk.devcluster.processes import Guard
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError

_USUAL_PLACES = (Path("/usr/local/go/bin"), Path("/opt/homebrew/bin"), Path("/usr/lib/go/bin"))
_POLL = 0.2
_LOADS_TOOLCHAINS = (1, 21)  # the first Go that can download the newer version which a go.mod requires
_LAST_LINES = 15
# Variables that would change the built program; other settings of Go (proxy, caches) remain the user's.
_STEERING = ("GOOS", "GOARCH", "GOFLAGS", "GO111MODULE", "GOEXPERIMENT", "GOBIN", "GODEBUG", "CGO_CFLAGS", "CC")


@dataclass(frozen=True, slots=True)
class GoBuild:
    """Source that builds with the installed Go, which downloads a newer toolchain if the module requires it."""

    environ: Mapping[str, str]
    logs: Path

    def fetch(self, program: Program, target: Target, file: Path, progress: Progress, /) -> None:
        """Build the program. Raises ClusterError with the end of Go's output if that fails."""
        go = find_go(self.environ)
        log = self.logs / f"build-{program.name}.log"
        with tempfile.TemporaryDirectory() as work, log.open("wb") as output:
            source = Path(work) / program.module.name
            shutil.copytree(program.module, source)  # the package's own folder may be read-only
            guard = Guard.start([Path(work)])
            try:
                process = subprocess.Popen(
                    command(go, program, file),
                    cwd=source,
                    env=environment(self.environ, target),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=0,
                )
                guard.send_groups([process.pid])
                code = _wait(process, progress)
                guard.send_groups([])
            finally:
                guard.finish()
        if code != 0:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
            raise ClusterError(
                f"{go} could not build {program.name} (exit code {code}); the full log is {log}, it ends:\n"
                + "\n".join(f"  {line}" for line in lines),
            )
        log.unlink()


def find_go(environ: Mapping[str, str]) -> str:
    """Return the path of a recent Go in PATH or a default installation folder. Raises UnavailableError."""
    folders = [*environ.get("PATH", "").split(os.pathsep), *map(str, _USUAL_PLACES)]
    too_old = []
    for folder in folders:
        go = shutil.which("go", path=folder) if folder else None
        if go is None:
            continue
        version = _version(go, environ)
        if version >= _LOADS_TOOLCHAINS:
            return go
        too_old.append(f"{go} is Go {'.'.join(map(str, version)) or 'of an unknown version'}")
    if too_old:
        needed = ".".join(map(str, _LOADS_TOOLCHAINS))
        raise UnavailableError(f"Go: {'; '.join(too_old)}; version {needed} or later is required")
    raise UnavailableError(f"Go: not in PATH or {', '.join(map(str, _USUAL_PLACES))}")


def _version(go: str, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the major and minor version; empty if it is unknown (a version manager's shim can fail)."""
    # From /, so that no go.mod in the working directory makes Go download another toolchain.
    done = subprocess.run([go, "version"], cwd="/", env=environ, capture_output=True, text=True, check=False)
    match = re.search(r"\bgo(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else ()


def command(go: str, program: Program, file: Path) -> list[str]:
    """Return the command that builds a program."""
    variables = " ".join(f"-X {name}={value}" for name, value in program.variables)
    flags = f"-s -w {variables}".rstrip()
    return [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        # `-w` leaves debugging data out of the program. The compiler would spend a sixth of its time on it.
        "-gcflags=all=-dwarf=false",
        "-ldflags",
        flags,
        "-o",
        str(file),
        program.package,
    ]


def environment(environ: Mapping[str, str], target: Target) -> dict[str, str]:
    """Return the environment of the build: the user's, without variables that would change the program."""
    kept = {name: value for name, value in environ.items() if name not in _STEERING}
    return {
        "GOTOOLCHAIN": "auto",  # download a newer toolchain if required, unless the user sets another value
        **kept,
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOOS": target.system,
        "GOARCH": target.machine,
    }


def _wait(process: subprocess.Popen[bytes], progress: Progress) -> int:
    try:
        while True:
            try:
                return process.wait(_POLL)
            except subprocess.TimeoutExpired:
                progress.tick("building with Go")
    finally:
        if process.poll() is None:  # interrupted: stop Go's compilers
            os.killpg(process.pid, 15)
            process.wait()
