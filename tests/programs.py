"""Gets the programs that tests need beside the control plane's: `python -m tests.programs`.

Done before the tests, since a machine that has to build one takes longer than a test may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from runner.config import locks
from runner.devcluster import folders
from runner.devcluster.cluster import get_actionlint, get_helm
from runner.errors import ClusterError
from tests import mariadb


def get_promtool(environ: Mapping[str, str], progress: TextIO) -> Path:
    """Return Prometheus' own checker of rules and metrics: the one in PATH, else that of Debian's package, unpacked.

    Nothing is installed and no rights are needed: the program goes into the cache. Raises ClusterError where neither
    can be had; to build it takes longer than to build a control plane.
    """
    found = shutil.which("promtool", path=environ.get("PATH"))
    if found:
        return Path(found)
    program = folders.binaries(environ) / "promtool" / "promtool"
    with locks.locked(program.with_name("lock"), lambda: None):
        if not program.exists():
            print("Getting promtool out of Debian's package prometheus", file=progress)
            _unpack("prometheus", "usr/bin/promtool", program)
    return program


def _unpack(package: str, member: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as new:
        own = ("-o", f"Dir::State::lists={new}/lists", "-o", f"Dir::Cache={new}/cache", "-o", "Acquire::Retries=3")
        for part in ("lists/partial", "cache/archives/partial"):
            Path(new, part).mkdir(parents=True)
        reasons = []
        # A fresh image has no lists of packages: they are fetched then, into a folder of our own.
        for fetch in (
            [["apt-get", "download", package]],
            [["apt-get", *own, *do] for do in (["update"], ["download", package])],
        ):
            try:
                for command in fetch:
                    _run(command, new)
                (archive,) = Path(new).glob("*.deb")
                _run(["dpkg-deb", "-x", str(archive), f"{new}/files"], new)
            except (OSError, subprocess.CalledProcessError) as error:
                reasons.append(f"{error}: {getattr(error, 'stderr', '')}".rstrip(": \n"))
                continue
            Path(new, "files", member).replace(target)
            return
    told = "".join(f"\n  - {reason}" for reason in reasons)
    raise ClusterError(
        f"{target.name} is not in PATH, and Debian's package {package} cannot be had:{told}\n"
        f"Put {target.name} into PATH (https://prometheus.io/download/), or open the network."
    )


def _run(command: list[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


_BROWSERS = ("chromium", "google-chrome")


def find_browser() -> tuple[str, str] | None:
    """Return the browser in PATH and what drives it; None where one is missing."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def get_browser(progress: TextIO) -> None:
    """Have Chromium and what drives it: those in PATH, else Debian's. Raises ClusterError where neither is."""
    if find_browser() is not None:
        return
    _install(("chromium", "chromium-driver"), "tests of the page", progress)


def get_image_builders(progress: TextIO) -> None:
    """Have what builds images in chroots, which only root may do. Raises ClusterError where it cannot be had."""
    missing = [name for name in ("buildah", "mmdebstrap", "unshare") if shutil.which(name) is None]
    if os.geteuid() == 0 and missing:
        _install(("buildah", "mmdebstrap", "util-linux"), "tests of the image", progress)


def get_database(progress: TextIO) -> None:
    """Have MariaDB's server and clients. Raises ClusterError where they cannot be had."""
    if not all(map(shutil.which, map(mariadb.find, ("mariadbd", "mariadb-install-db", "mariadb-dump")))):
        _install(("mariadb-server-core", "mariadb-client"), "tests of examples", progress)


def _install(packages: tuple[str, ...], why: str, progress: TextIO) -> None:
    install = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q", "--no-install-recommends", *packages]
    named = " and ".join(packages)
    reasons = []
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing Debian's packages {named}", file=progress)
        for commands in ([install], [["apt-get", "update", "-q"], install]):
            try:
                for command in commands:
                    _run(["env", "DEBIAN_FRONTEND=noninteractive", *command], "/")
            except subprocess.CalledProcessError as error:
                reasons.append(f"\n  - {error}: {error.stderr}".rstrip())
            else:
                return
    told = "".join(reasons) or "this is not root on Debian"
    raise ClusterError(
        f"The programs of {named}, which {why} need, are not in PATH and cannot be installed: {told}\n"
        f"Install them (Debian: {' '.join(install)})."
    )


if __name__ == "__main__":
    try:
        for get in (get_helm, get_promtool, get_actionlint):
            get(os.environ, sys.stderr)
        get_browser(sys.stderr)
        get_image_builders(sys.stderr)
        get_database(sys.stderr)
    except ClusterError as error:
        sys.exit(str(error))
