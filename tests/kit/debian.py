"""Debian's packages, downloaded and unpacked into a folder: nothing is installed, and no rights are needed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runner.values.errors import ClusterError


def unpack(packages: Sequence[str], into: Path, *, dependencies: bool = False) -> None:
    """Unpack packages, in the versions of this machine's Debian; `dependencies`: with the libraries that they need.

    Raises ClusterError where they cannot be had.
    """
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".new-") as new:
        for part in ("lists/partial", "cache/archives/partial"):
            Path(new, part).mkdir(parents=True)
        Path(new, "status").touch()
        own = (
            *("-o", f"Dir::Cache::archives={new}/cache/archives", "-o", "Dir::Cache::pkgcache="),
            *("-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"),
        )
        lists = ("-o", f"Dir::State::lists={new}/lists")
        # Nothing counts as installed, so each dependency is downloaded.
        nothing = ("-o", f"Dir::State::status={new}/status", "-o", "Debug::NoLocking=true")
        fetch = ["download"]
        if dependencies:
            fetch = [*nothing, "install", "--download-only", "--no-install-recommends", "--yes", "--quiet"]
        reasons = []
        # A fresh image has no lists of packages, and old lists name packages that have gone: then they are fetched.
        for commands in (
            [["apt-get", *own, *fetch, *packages]],
            [["apt-get", *own, *lists, "update"], ["apt-get", *own, *lists, *fetch, *packages]],
        ):
            try:
                for command in commands:
                    _run(command, new)
                found = sorted(path for where in (new, f"{new}/cache/archives") for path in Path(where).glob("*.deb"))
                for archive in found:
                    if archive.name.startswith(("lib", "zlib", *(f"{package}_" for package in packages))):
                        _run(["dpkg-deb", "-x", str(archive), str(into)], new)
            except (OSError, subprocess.CalledProcessError) as error:
                reasons.append(f"{error}: {getattr(error, 'stderr', '')}".rstrip(": \n"))
                continue
            return
    told = "".join(f"\n  - {reason}" for reason in reasons)
    raise ClusterError(f"Debian's packages {', '.join(packages)} cannot be had:{told}")


def _run(command: Sequence[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
