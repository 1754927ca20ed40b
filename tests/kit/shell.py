"""Commands in a project's folder, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.sdk import devcluster as clusters
from tests.kit.places import BIN
from tests.kit.processes import merged
from tests.kit.wait import patience


@dataclass(frozen=True)
class Sh:
    """Runs commands in a folder. A command that fails fails the test, except without `check`."""

    folder: Path
    environ: Mapping[str, str]

    def __call__(self, *command: str, check: bool = True, stdin: str = "") -> str:
        """Return what a command prints on both streams."""
        done = merged(*command, cwd=self.folder, env=self.environ, input=stdin)
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout

    def wait(self, *what: str, check: bool = True) -> str:
        """Wait with `kubectl wait`."""
        return self("kubectl", "wait", *what, f"--timeout={patience():.0f}s", check=check)

    def await_rollout(self, *what: str) -> None:
        """Wait until the pods of a Deployment are those of its template."""
        self("kubectl", "rollout", "status", *what, f"--timeout={patience():.0f}s")

    def get(self, *what: str) -> Any:
        """Return an object, or a list of objects."""
        return json.loads(self("kubectl", "get", *what, "--output=json"))

    def apply(self, *objects: object, flags: tuple[str, ...] = (), check: bool = True) -> str:
        """Apply objects with kubectl."""
        return self(
            "kubectl", "apply", *flags, "--filename=-", check=check, stdin="\n---\n".join(map(json.dumps, objects))
        )


def shell(folder: Path, devcluster: clusters.DevCluster, own: Mapping[str, str], *programs: Path) -> Sh:
    """Return what runs commands in `folder` with variables of its `own`; PATH leads to us, kubectl and `programs`."""
    folders = [BIN, *(program.parent for program in (devcluster.kubectl, *programs)), os.environ["PATH"]]
    # The make that runs these tests is none of the user's.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    path = os.pathsep.join(map(str, folders))
    return Sh(folder, {**kept, **own, "PATH": path, "KUBECONFIG": str(devcluster.kubeconfig)})


def generate(folder: Path, *commands: str) -> Path:
    """Type commands of `ansible-operator` in a project's folder, which can be new, and return the folder."""
    folder.mkdir(exist_ok=True)
    for command in commands:
        subprocess.run([BIN / "ansible-operator", *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder
