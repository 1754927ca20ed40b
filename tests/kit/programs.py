"""Gets programs that tests need beside the control plane's, and ansible-core's tests: `python -m tests.kit.programs`.

Done before the tests, since a machine that has to build one takes longer than a test may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from runner.base.config import locks
from runner.engines.warm import tested
from runner.sdk.devcluster import folders
from runner.sdk.devcluster.cluster import get_programs
from runner.sdk.devcluster.nodes import Nodes, missing
from runner.values.errors import ClusterError
from tests.kit import debian, mariadb, ssh_hosts, workloads
from tests.kit.go_programs import get_actionlint, get_helm
from tests.parity import targets


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
            with tempfile.TemporaryDirectory(dir=program.parent, prefix=".new-") as new:
                debian.unpack(["prometheus"], Path(new))
                Path(new, "usr/bin/promtool").replace(program)
    return program


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


def get_workloads(progress: TextIO) -> None:
    """Have the images that pods of tests run, which only root can. Raises ClusterError where they cannot be made."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        workloads.archives(progress)


def get_database(progress: TextIO) -> None:
    """Have MariaDB's server and clients. Raises ClusterError where they cannot be had."""
    if not all(map(shutil.which, map(mariadb.find, ("mariadbd", "mariadb-install-db", "mariadb-dump")))):
        _install(("mariadb-server-core", "mariadb-client"), "tests of examples", progress)


def get_hosts(progress: TextIO) -> None:
    """Have what hosts with SSH need, which only root can make. Raises ClusterError where it cannot be had."""
    if os.geteuid() == 0 and shutil.which("apt-get") and ssh_hosts.missing():
        packages = ("openssh-server", "openssh-client", "sshpass", "sudo", "iproute2", "procps")
        _install(packages, "tests of hosts", progress)


def get_node(environ: Mapping[str, str], progress: TextIO) -> None:
    """Have what a real node needs, which only root can run. Raises ClusterError where it cannot be had."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    busybox = Path("/usr/bin/busybox")
    is_static = busybox.exists() and b"/ld-linux" not in busybox.read_bytes()  # the name of the dynamic linker
    if missing(environ) or not is_static:
        packages = ("containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "busybox-static")
        _install(packages, "tests of a real node", progress)
    get_programs(environ, progress, Nodes.REAL)


def get_targets(progress: TextIO) -> None:
    """Have the integration targets of the tested ansible-cores. Raises ClusterError where it cannot."""
    for core in {*(f"{major}.{minor}" for major, minor in tested.CORES), version("ansible-core")}:
        try:
            targets.get(core, progress)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            raise ClusterError(f"The source distribution of ansible-core {core} cannot be had: {error}") from error


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
        get_hosts(sys.stderr)
        get_node(os.environ, sys.stderr)
        get_workloads(sys.stderr)
        get_targets(sys.stderr)
    except ClusterError as error:
        sys.exit(str(error))
