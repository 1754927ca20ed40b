"""Edits of a project that `ansible-operator dev` runs: applied by a restart, and never half."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.kit.operator import PROGRAM, Operator
from tests.kit.tasks import config_map
from tests.kit.terminal import Terminal
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Things
    from tests.kit.operator import Project

SAY = """
- name: Say it
  ansible.builtin.debug:
    msg: {}
"""
FAIL = """
- name: Fail, so that the object waits for a retry
  ansible.builtin.fail:
    msg: first
"""


@contextmanager
def dev(project: Project, cluster: DevCluster) -> Iterator[Operator]:
    project.write("watches.yaml", yaml.safe_dump(project.watches))
    command = [*PROGRAM, "dev", f"--kubeconfig={cluster.kubeconfig}", "--yes"]
    flags = [f"--namespace={project.namespace}", f"--runner-dir={project.folder / 'runs'}"]
    with subprocess.Popen(
        [*command, "--", *flags],
        cwd=project.folder,
        env=os.environ | {"PATH": f"{cluster.kubectl.parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        printed = (line.decode() for line in process.stdout)
        log = next(line.split()[1] for line in printed if line.startswith("Log:"))
        try:
            yield Operator(process, Path(log))
        finally:
            process.terminate()
            process.communicate()
            Path(log).unlink()


def test_a_broken_edit_starts_no_run_and_its_cure_starts_the_operator_again_at_the_same_page(
    project: Project, things: Things, devcluster: DevCluster
) -> None:
    project.role("thing", FAIL)
    project.watch("thing")
    with dev(project, devcluster) as operator:
        things.create("a")
        operator.await_line("Retrying the object with backoff", name="a")

        project.role("thing", "- name: [broken\n")
        problem = operator.await_line("The project is invalid; no run starts until you fix it")["problem"]
        assert problem.startswith("roles/thing/tasks/main.yml:")
        operator.await_line("Stopped")
        assert all("first" in run["error"] or run["outcome"] == "canceled" for run in operator.runs("a"))

        project.role("thing", SAY.format("second"))
        operator.await_line("Run ended", name="a", outcome="succeeded")
        wait_until(lambda: "second" in operator.log, "the output of the edited task")
        first, second = operator.lines("Serving the status page")
        assert first["url"] == second["url"]
        (edit,) = operator.lines("The project was edited; the operator starts again")
        assert edit["why"] == "roles/thing/tasks/main.yml"


WAIT = "- name: Wait long\n  ansible.builtin.command: sleep 600\n"


def has_created_configmaps(record: Path) -> bool:
    """Return whether a record has the role's write; the operator itself reads a ConfigMap."""
    documents = yaml.safe_load_all(record.read_text()) if record.exists() else ()
    rules = [rule for document in documents for rule in document["rules"]]
    return any("configmaps" in rule["resources"] and "create" in rule["verbs"] for rule in rules)


def test_ctrl_c_names_the_run_that_it_waits_for_and_a_second_one_ends_it_with_a_summary(
    project: Project, things: Things, devcluster: DevCluster
) -> None:
    project.role("thing", config_map() + WAIT)
    project.watch("thing")
    project.write("watches.yaml", yaml.safe_dump(project.watches))
    project.write("config/rbac/role.yaml", "kind: ClusterRole\nmetadata: {name: manager-role}\nrules: []\n")
    sample = project.write("config/samples/thing.yaml", "")
    record = project.folder / "rights.yaml"
    folders = (str(Path(sys.executable).parent), str(devcluster.kubectl.parent), os.environ["PATH"])
    terminal = Terminal("dev", project.folder, os.environ | {"PATH": ":".join(folders)})
    try:
        flags = f"--namespace={project.namespace} --runner-dir={project.folder / 'runs'} --record-rbac={record}"
        terminal.type(f"ansible-operator dev --kubeconfig={devcluster.kubeconfig} --yes -- {flags}")
        apply = f"kubectl apply -f {sample.relative_to(project.folder)}"
        terminal.await_shown(lambda shown: apply in shown, apply, patience())
        things.create("a")
        subject = f"Thing {project.namespace}/a"
        terminal.await_shown(lambda shown: f"{subject}: task 2: Wait long" in shown, "the run", patience())
        wait_until(lambda: has_created_configmaps(record), "the record")
        os.write(terminal._master, b"\x03")
        sentence = f"Stopping: waits up to 2 s for {subject} (task 2: Wait long). Ctrl-C again stops it now"
        terminal.await_shown(lambda shown: sentence in shown, sentence, patience())
        os.write(terminal._master, b"\x03")
        code, shown = terminal._await_prompt(patience())
    finally:
        terminal.close(patience())
    assert code == 0
    summary = shown[shown.index("Stopped. Runs: ") :]
    assert "Log: /" in summary
    verbs = "[create, delete, get, list, patch, update, watch]"
    assert f"  {{apiGroups: [''], resources: [configmaps], verbs: {verbs}}}\n" in summary
    assert f"Add them: ansible-operator generate rbac {record}\n" in summary
