"""A developer who has molecule, and a project of theirs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kit.operator import PORTS
from tests.kit.places import BIN, ROOT
from tests.kit.processes import merged
from tests.kit.wait import patience

STEPS = ("syntax", "create", "prepare", "converge", "idempotence", "verify", "cleanup", "destroy")
"""What `molecule test` does."""


@dataclass(frozen=True)
class Project:
    """A project of a developer who has molecule."""

    folder: Path
    environ: dict[str, str]

    def sh(self, *command: str) -> subprocess.CompletedProcess[str]:
        return merged(*command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL)

    def molecule(self, command: str, outcome: int = 0, scenario: str = "default") -> dict[str, bool]:
        """Run a command of molecule, which must end so, and return which actions succeeded."""
        done = self.sh("molecule", command, f"--scenario-name={scenario}")
        details = done.stdout.rpartition("DETAILS")[2].partition("SCENARIO RECAP")[0]
        lines = [line.removeprefix(f"{scenario} > ").partition(": ") for line in details.splitlines() if " > " in line]
        assert bool(done.returncode) == bool(outcome), done.stdout
        return {action: "Successful" in result for action, _, result in lines}


def copy_sample(into: Path) -> Path:
    """Copy what of this repository is the sample operator's into a folder of its project's name."""
    folder = into / "memcached-operator"
    folder.mkdir()
    for part in ("roles", "playbooks", "config", "molecule"):
        shutil.copytree(ROOT / part, folder / part)
    for part in ("PROJECT", "watches.yaml", "requirements.yml"):
        shutil.copy(ROOT / part, folder)
    return folder


@contextlib.contextmanager
def running(
    project: Path, kubeconfig: str | Path, folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run the operator of a project; its log is `folder/log`."""
    flags = (*PORTS, f"--kubeconfig={kubeconfig}", f"--runner-dir={folder}/runs")
    with (folder / "log").open("wb") as log:
        command = [str(BIN / "ansible-operator"), "run", *flags]
        operator = subprocess.Popen(command, cwd=project, env=environ, stdout=log, stderr=log)
        try:
            yield
        finally:
            operator.terminate()
            assert operator.wait(patience()) == 0


@contextlib.contextmanager
def of_a_developer(folder: Path) -> Iterator[Project]:
    """Return the project in `folder`; at the end nothing of it runs."""
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("KUBECONFIG", "K8S_", "ANSIBLE_"))
    }
    environ |= {"PATH": os.pathsep.join([str(BIN), os.environ["PATH"], "/usr/sbin"]), "NO_COLOR": "1", "COLUMNS": "200"}
    # Clusters are called after the project: another test may have one of the same name at the same time.
    own = {"MOLECULE_EPHEMERAL_DIRECTORY": f"{folder}-molecule", "XDG_STATE_HOME": str(folder.parent / "state")}
    made = Project(folder, environ | own)
    try:
        yield made
    finally:
        made.molecule("destroy")
    assert f"molecule-{folder.name}: running" not in made.sh("ansible-operator", "cluster", "status").stdout
