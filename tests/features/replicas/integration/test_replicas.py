"""Two operators, of which one leads."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

LEASE = 6.0
RENEW = 3.0
ELECTION = (
    "--leader-election-id=thing-operator",
    f"--leader-elect-lease-duration={LEASE}s",
    f"--leader-elect-renew-deadline={RENEW}s",
)
HOLD = """
- name: Begin
  ansible.builtin.shell: >-
    echo "begin {{ ansible_operator_meta.name }} $(date +%s.%N)" >> {{ lookup('env', 'NOTES') }};
    for i in $(seq 600); do test -e {{ lookup('env', 'NOTES') }}.go && break; sleep 0.05;
    echo "beat {{ ansible_operator_meta.name }} $(date +%s.%N)" >> {{ lookup('env', 'NOTES') }}; done;
    echo "end {{ ansible_operator_meta.name }} $(date +%s.%N)" >> {{ lookup('env', 'NOTES') }}
"""


def replica(project: Project, name: str, *flags: str, ready: bool = True) -> Operator:
    return project.start(
        f"--runner-dir={project.folder / name}",
        f"--leader-election-namespace={project.namespace}",
        *ELECTION,
        *flags,
        environment={"NOTES": str(project.folder / "notes"), "POD_NAME": name},
        ready=ready,
    )


def lease(api: Api, namespace: str, name: str = "thing-operator") -> dict[str, Any]:
    found = api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    return found["spec"] if found else {}


def when(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["ts"]).timestamp()


def test_a_standby_replica_is_ready_and_takes_over_within_a_second_of_a_clean_stop(
    project: Project, things: Things, api: Api, namespace: str
) -> None:
    project.allow_lease("thing-operator")
    project.role("thing", HOLD)
    project.watch("thing")
    a = replica(project, "a", "--leader-elect")
    a.await_line("Lease acquired")
    b = replica(project, "b", "--leader-elect")
    assert b.await_line("Another replica holds the leader lease")["holder"].startswith("a_")
    spec = lease(api, namespace)
    assert spec["holderIdentity"].startswith("a_")
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (LEASE, 0)
    things.create("one", {"size": 1})
    a.await_line("Run started", name="one")
    a.process.send_signal(signal.SIGTERM)
    (project.folder / "notes.go").touch()
    assert a.process.wait(patience()) == 0
    assert a.runs("one")[0]["outcome"] == "succeeded"
    taken = b.await_line("Lease acquired")
    released = a.lines(msg="Lease released")[0]
    assert when(taken) - when(released) < LEASE / 2, "by the release, not since the Lease was over"
    assert when(a.runs("one")[0]) <= when(released)
    things.await_success("one")
    assert lease(api, namespace)["leaseTransitions"] == 1
    b.await_line("Run ended", name="one", reason="present at start")
    assert not b.lines(level="error")
    assert b.stop() == 0
    assert lease(api, namespace)["holderIdentity"] == ""


@pytest.mark.full
def test_a_replica_that_is_paused_for_too_long_is_ended_by_the_kernel_before_the_other_begins(
    project: Project, things: Things
) -> None:
    project.allow_lease("thing-operator")
    project.role("thing", HOLD)
    project.watch("thing")
    a = replica(project, "a", "--leader-elect")
    a.await_line("Lease acquired")
    b = replica(project, "b", "--leader-elect")
    things.create("one", {"size": 1})
    notes = project.folder / "notes"
    wait_until(lambda: notes.exists() and "beat" in notes.read_text(), "the role's task")
    os.kill(a.process.pid, signal.SIGSTOP)
    assert a.process.wait(LEASE + 5) == -signal.SIGKILL
    b.await_line("Run started", name="one")
    began = [float(line.split()[2]) for line in notes.read_text().splitlines() if line.startswith("begin")]
    wait_until(lambda: notes.read_text().count("begin") == 2, "the second run's task")
    lines = [line.split() for line in notes.read_text().splitlines()]
    second = [i for i, line in enumerate(lines) if line[0] == "begin"][1]
    assert float(lines[second - 1][2]) - began[0] < LEASE + 1
    # Whatever the first run would have done afterwards would stand among the second's beats.
    (project.folder / "notes.go").touch()
    things.await_success("one")
    assert notes.read_text().count("end") == 1
    assert b.stop() == 0


def test_a_leader_without_an_api_server_ends_its_runs_in_time_and_leads_again_afterwards(
    project: Project, things: Things, devcluster: DevCluster
) -> None:
    project.allow_lease("thing-operator")
    project.role("thing", HOLD)
    project.watch("thing")
    # Long enough between what it gives up and what the kernel ends that a slow machine ends the run in time.
    lasts, renewed = 15.0, 6.0
    times = (f"--leader-elect-lease-duration={lasts}s", f"--leader-elect-renew-deadline={renewed}s")
    a = replica(project, "a", "--leader-elect", *times)
    things.create("one", {"size": 1})
    notes = project.folder / "notes"
    wait_until(lambda: notes.exists() and "beat" in notes.read_text(), "the role's task")
    devcluster.stop_apiserver()
    stopped = time.time()
    lost = a.await_line("Lease lost")
    assert when(lost) - stopped <= renewed + 2
    ended = a.await_line("Lost the leader lease; canceled the attempt", name="one")
    assert when(ended) - stopped <= lasts
    assert "end" not in notes.read_text()
    (project.folder / "notes.go").touch()
    devcluster.start_apiserver()
    wait_until(lambda: len(a.lines(msg="Lease acquired")) == 2, "the Lease to be taken back")
    things.await_success("one")
    assert a.stop() == 0
