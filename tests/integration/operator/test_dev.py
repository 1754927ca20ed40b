"""Edits of a project that `ansible-operator dev` runs: applied by a restart, and never half."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.kit.operator import Operator
from tests.kit.wait import wait_until

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
    command = [
        str(Path(sys.executable).with_name("ansible-operator")),
        "dev",
        f"--kubeconfig={cluster.kubeconfig}",
        "--yes",
    ]
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
        project.watches[0]["vars"] = {"more": 1}
        project.write("watches.yaml", yaml.safe_dump(project.watches))
        wait_until(lambda: len(operator.lines("Serving the status page")) == 3, "the third operator")
        assert len({line["url"] for line in operator.lines("Serving the status page")}) == 1
        reason = operator.lines("The project was edited; the operator starts again")[-1]["why"]
        assert reason == "watches.yaml"
