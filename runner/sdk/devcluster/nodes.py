"""Choice of a cluster's nodes, and the requirements of the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from runner.sdk.devcluster import binaries, node, pause
from runner.sdk.devcluster.processes import CGROUPS, leashed, missing_controllers
from runner.values.errors import ClusterError, ConfigError

VARIABLE = "DEVCLUSTER_NODE"
"""Environment variable with the default of `--node`."""
_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
}
NAMESPACES = Path(__file__).with_name("namespaces.py")
_WITHIN = 30.0
_CNI = ("ptp", "host-local", "portmap", "loopback")


class Nodes(StrEnum):
    """Nodes of a cluster."""

    REAL = "real"
    FAKE = "fake"
    BOTH = "both"

    @property
    def has_real(self) -> bool:
        """True if the kubelet runs pods."""
        return self is not Nodes.FAKE

    @property
    def has_fake(self) -> bool:
        """True if kwok simulates pods."""
        return self is not Nodes.REAL


def choose(option: str | None, environ: Mapping[str, str]) -> Nodes:
    """Return the nodes for `--node`. The default does not depend on the user or the machine.

    Raises ClusterError if this machine cannot run the requested ones.
    """
    value = option or environ.get(VARIABLE) or Nodes.FAKE
    if value not in list(Nodes):
        raise ConfigError(f"invalid {VARIABLE} {value!r}: use real, fake or both")
    if value != Nodes.FAKE and (reason := missing(environ)):
        raise ClusterError(f"a real node cannot run here: {reason}. Use `--node fake` to simulate pods")
    return Nodes(value)


def missing(environ: Mapping[str, str]) -> str:
    """Return the reason why this machine cannot run a real node; empty if it can."""
    if sys.platform != "linux":
        return "it needs Linux"
    machine = binaries.this_machine().machine
    if machine not in pause.MACHINES:
        return f"it needs one of the architectures {', '.join(sorted(pause.MACHINES))}, not {machine}"
    if os.geteuid() != 0:
        return "it needs root"
    if reason := cgroup_problem():
        return reason
    packages = {package for name, package in _PACKAGES.items() if find(name, environ) is None}
    if not all(os.access(Path(node.CNI_PROGRAMS, name), os.X_OK) for name in _CNI):
        packages.add("containernetworking-plugins")
    if packages:
        return f"programs are missing; on Debian: apt-get install {' '.join(sorted(packages))}"
    return refusal(environ)


def refusal(environ: Mapping[str, str]) -> str:
    """Return the reason why this machine does not permit the namespaces of a real node; empty if it does."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run").mkdir()
        command = leashed(sys.executable, "-I", "-S", str(NAMESPACES), folder, "", node.ADDRESS)
        path = {"PATH": search_path(environ)}
        try:
            done = subprocess.run(command, env=path, capture_output=True, text=True, check=False, timeout=_WITHIN)
        except subprocess.TimeoutExpired:
            return f"namespaces could not be prepared within {_WITHIN:.0f} s"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""


def cgroup_problem(root: Path = CGROUPS) -> str:
    """Return the reason why pods cannot have cgroups here, with version 1 or 2; empty if they can."""
    controllers = root / "cgroup.controllers"
    is_v2 = controllers.exists() and "memory" in controllers.read_text(encoding="ascii").split()
    if not os.access(root, os.W_OK) or not (is_v2 or (root / "memory/cgroup.procs").exists()):
        return f"it needs cgroups with the memory controller, writable in {root}"
    # Only the root cgroup of the machine, which has no type, may have both processes and cgroups with controllers.
    is_inner = (root / "cgroup.type").exists()
    if is_v2 and is_inner and missing_controllers(root) and (root / "cgroup.procs").read_text(encoding="ascii"):
        return f"processes in {root} prevent its cgroups from having controllers: move them into a cgroup below"
    return ""


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of an installed program; folders of system programs need not be in PATH."""
    return shutil.which(name, path=search_path(environ))


def search_path(environ: Mapping[str, str]) -> str:
    """Return PATH with the folders of system programs."""
    return os.pathsep.join(filter(None, (environ.get("PATH"), node.SYSTEM_PATH)))
