"""A project as `init` and `create api` write it, installed on the real control plane."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from runner.sdk import devcluster as clusters
from tests.kit.places import BIN

Sh = Callable[..., str]


def shell(folder: Path, devcluster: clusters.DevCluster, own: Mapping[str, str], *programs: Path) -> Sh:
    """Return what runs commands in `folder` with variables of its `own`; PATH leads to us, kubectl and `programs`."""
    folders = [BIN, *(program.parent for program in (devcluster.kubectl, *programs)), os.environ["PATH"]]
    # The make that runs these tests is none of the user's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    path = os.pathsep.join(map(str, folders))
    environ = {**kept, **own, "PATH": path, "KUBECONFIG": str(devcluster.kubeconfig)}

    def run(*command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environ, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout

    return run
