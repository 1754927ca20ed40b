"""The molecule scenario of a generated project, run as its developer does: it passes, and finds what is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
TASKS = "roles/basket/tasks/main.yml"
MAKE = """\
---
- name: Make a ConfigMap
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        content: CONTENT
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shop-operator"
    made.mkdir()
    for line in ("init --domain example.org", "create api --group shop --kind Basket --finalizer"):
        subprocess.run([BIN / "ansible-operator", *line.split()], cwd=made, check=True, stdout=subprocess.DEVNULL)
    return made


@dataclass(frozen=True)
class Project:
    """A project of a developer who has molecule."""

    folder: Path
    environ: dict[str, str]

    def write(self, tasks: str) -> None:
        (self.folder / TASKS).write_text(tasks, encoding="utf-8")

    def sh(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def molecule(self, command: str, outcome: int = 0) -> dict[str, bool]:
        """Run a command of molecule, which must end so, and return which actions succeeded."""
        done = self.sh("molecule", command)
        details = done.stdout.rpartition("DETAILS")[2].partition("SCENARIO RECAP")[0]
        lines = [line.removeprefix("default > ").partition(": ") for line in details.splitlines() if " > " in line]
        assert bool(done.returncode) == bool(outcome), done.stdout
        return {action: "Successful" in result for action, _, result in lines}


@pytest.fixture
def project(folder: Path, tmp_path: Path) -> Iterator[Project]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "K8S_", "ANSIBLE_"))}
    environ |= {"PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]), "NO_COLOR": "1", "COLUMNS": "200"}
    environ |= {"MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule")}
    if "KUBEBUILDER_ASSETS" in os.environ:
        environ["KUBEBUILDER_ASSETS"] = os.environ["KUBEBUILDER_ASSETS"]
    made = Project(folder, environ)
    yield made
    made.molecule("destroy")
    assert "molecule-shop-operator: running" not in made.sh("ansible-operator", "cluster", "status").stdout


@pytest.mark.full
@pytest.mark.xdist_group("molecule")
def test_the_scenario_of_a_project_passes(project: Project) -> None:
    actions = ["syntax", "create", "prepare", "converge", "idempotence", "verify", "cleanup", "destroy"]
    project.write(MAKE.replace("CONTENT", "always the same"))
    assert project.molecule("test") == dict.fromkeys(actions, True)


@pytest.mark.full
@pytest.mark.xdist_group("molecule")
def test_it_finds_a_role_that_is_not_idempotent_and_one_that_fails(project: Project) -> None:
    project.write(MAKE.replace("CONTENT", "\"{{ lookup('ansible.builtin.pipe', 'date +%s%N') }}\""))
    project.molecule("converge")
    told = project.sh("molecule", "idempotence")
    assert told.returncode
    assert "Say that each run changes something" in told.stdout.rpartition("Idempotence test failed")[2]

    project.write("---\n- name: Fail\n  ansible.builtin.fail:\n    msg: broken on purpose\n")
    status = project.sh("ansible-operator", "cluster", "status").stdout
    kubectl = status.partition("molecule-shop-operator: running")[2].partition("kubectl")[2].split()[0]
    kubeconfig = f"--kubeconfig={project.environ['MOLECULE_EPHEMERAL_DIRECTORY']}/kubeconfig"
    basket = ("basket.shop.example.org/basket-sample", "--namespace=shop-operator-test")
    waited = project.sh(kubectl, kubeconfig, "wait", "--for=condition=Failure", "--timeout=90s", *basket)
    assert waited.returncode == 0, waited.stdout
    told = project.sh("molecule", "verify")
    assert told.returncode
    assert "See that its last run found nothing wrong" in told.stdout
