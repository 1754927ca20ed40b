"""Changed content reaches the objects of a watch step by step, and stops at failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.objects import Things
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.browser import Reader
    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

COUNT = 10
ROLLOUT = "ansible.sdk.operatorframework.io/rollout"
ROLE = """
- name: Note the run
  ansible.builtin.shell: echo "{{ ansible_operator_meta.name }} VERSION" >> {{ lookup('env', 'NOTES') }}
- name: Wait for the others of the step
  ansible.builtin.shell: for i in $(seq 600); do test -e {{ lookup('env', 'NOTES') }}.go && break; sleep 0.05; done
- name: Fail for some objects
  ansible.builtin.fail: {msg: broken}
  when: ansible_operator_meta.name in FAILING
"""
FINALIZER = """
- name: Note the end
  ansible.builtin.shell: echo "{{ ansible_operator_meta.name }} finalizer" >> {{ lookup('env', 'NOTES') }}
"""


def name(number: int) -> str:
    return f"t-{number:03}"


def names(*numbers: int) -> set[str]:
    return set(map(name, numbers))


class Bed:
    """A fleet whose objects ran the version `v1` of their role."""

    def __init__(self, project: Project, things: Things, api: Api, devcluster: DevCluster) -> None:
        self.project, self.things, self.api = project, things, api
        self.admin = str(devcluster.kubeconfig)
        self.notes = project.folder / "notes"
        self.count = COUNT
        project.allow_lease("rollouts")
        project.allow_rollouts()

    def version(self, version: str, failing: tuple[str, ...] = ()) -> None:
        """Install a version of the role."""
        self.project.role("thing", ROLE.replace("VERSION", version).replace("FAILING", json.dumps(list(failing))))

    def watch(self, rollout: dict[str, Any], **options: Any) -> None:
        self.project.watches.clear()
        self.project.watch("thing", rollout=rollout, **options)

    def start(self, *flags: str, replica: str = "a", ready: bool = True) -> Operator:
        return self.project.start(
            "--engine=warm",
            f"--runner-dir={self.project.folder / replica}",
            f"--leader-election-namespace={self.project.namespace}",
            "--max-concurrent-reconciles=4",
            *flags,
            environment={"NOTES": str(self.notes), "POD_NAME": replica},
            ready=ready,
        )

    def populate(self, rollout: dict[str, Any], count: int = COUNT, **options: Any) -> None:
        """Create the fleet, and run `v1` for each object."""
        self.count = count
        self.version("v1")
        self.watch(rollout, **options)
        self.gate.touch()
        operator = self.start()
        for number in range(count):
            self.things.create(name(number), {"size": 1})
        self.await_all("v1")
        assert operator.stop() == 0

    def await_all(self, version: str) -> None:
        wait_until(lambda: len(self.ran(version)) == self.count, f"{version} for all; {self.ran(version)}")
        wait_until(lambda: self.state()["ended"], f"the end of the rollout: {self.state()}")

    @property
    def gate(self) -> Path:
        return self.notes.with_name("notes.go")

    def runs(self, version: str) -> list[str]:
        """Names of the objects that a version ran for, in order."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [line.split()[0] for line in lines if line.split()[1] == version]

    def ran(self, version: str) -> set[str]:
        return set(self.runs(version))

    def state(self) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self.project.namespace}/configmaps/ansible-operator-rollout-thing.test.example.com"
        found = self.api.call("GET", path)
        state: dict[str, Any] = json.loads(found["data"]["state"]) if found else {"ended": False}
        return state

    def await_updated(self, number: int, reason: str, text: str = "") -> None:
        def holds() -> bool:
            found = self.things.conditions(name(number)).get("Updated", {})
            return found.get("reason") == reason and text in found.get("message", "")

        wait_until(holds, f"Updated={reason} {text!r} of {name(number)}")

    def stays(self, version: str, ran: set[str], seconds: float = 4.0) -> None:
        """Assert that no further object runs."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.ran(version) == ran
            time.sleep(0.2)

    def command(self, verb: str, *flags: str) -> str:
        arguments = [verb, "Thing", "-n", self.project.namespace, *flags]
        command = [str(Path(sys.executable).with_name("ansible-operator")), "rollout", *arguments]
        done = subprocess.run(
            command,
            env={**os.environ, "KUBECONFIG": self.admin},
            capture_output=True,
            text=True,
            timeout=patience(),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def events(self) -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.project.namespace}/events"
        return [each["reason"] for each in self.api.call("GET", path)["items"] if each["action"] == "Rollout"]


@pytest.fixture
def bed(project: Project, things: Things, api: Api, devcluster: DevCluster) -> Bed:
    return Bed(project, things, api, devcluster)


def metric(operator: Operator, wanted: str) -> float:
    (value,) = [line.split()[-1] for line in operator.get("/metrics").splitlines() if line.startswith(f"{wanted}{{")]
    return float(value)


@pytest.mark.nightly
def test_a_failure_stops_new_content_mended_content_reaches_all_and_kills_of_the_operator_exceed_no_step(
    bed: Bed, things: Things
) -> None:
    finalizer = {"name": "test.example.com/end", "role": "end"}
    bed.project.role("end", FINALIZER)
    bed.populate({"steps": [3, "50%"]}, finalizer=finalizer)
    bed.version("v2", failing=(name(1),))
    bed.gate.unlink()
    operator = bed.start()
    wait_until(lambda: len(bed.ran("v2")) == 3, "the runs of the first step")
    bed.gate.touch()
    bed.await_updated(1, "Failed")
    bed.await_updated(7, "RolloutPaused", f"{things.namespace}/{name(1)}")
    # The other runs of the step may end after the rollout has paused.
    wait_until(lambda: metric(operator, "ansible_operator_rollout_outdated") == 7, "the runs of the step to end")
    bed.stays("v2", names(0, 1, 2))
    assert bed.things.conditions(name(7))["Successful"]["status"] == "True"
    assert bed.state()["limits"] == [3, 5, 10]
    wait_until(lambda: "RolloutPaused" in bed.events(), "the Event")
    assert metric(operator, "ansible_operator_rollout_paused") == 1
    assert metric(operator, "ansible_operator_rollout_outdated") == 7
    elsewhere = Things(bed.project.api, "default")
    elsewhere.create("in-a-namespace-that-the-operator-does-not-watch")
    report = bed.command("status")
    elsewhere.delete("in-a-namespace-that-the-operator-does-not-watch")
    assert f"Thing: step 1 of 3, paused: failed or not Ready: {things.namespace}/{name(1)}" in report
    assert "3 of 10 objects ran the content" in report

    # A paused rollout delays neither a user's change nor a new object nor a deletion.
    things.merge(name(6), {"spec": {"size": 2}})
    things.create("new", {"size": 1})
    things.delete(name(9))
    things.await_success(name(6))
    things.await_success("new")
    things.await_gone(name(9))
    assert bed.runs("finalizer") == [name(9)]
    bed.stays("v2", {*names(0, 1, 2, 6), "new"})

    assert operator.stop() == 0
    bed.version("v3")
    operator = bed.start()
    bed.await_all("v3")  # without the deleted object, with the new one
    assert set(bed.runs("v3")[:3]) == {*names(0, 1), "new"}, "the failed object and the first others by name"
    assert operator.stop() == 0

    # Operators that are killed again and again never exceed a step, and the last one ends the rollout.
    bed.version("v4")
    for kill in range(2):
        operator = bed.start(ready=False)
        known = len(bed.runs("v4"))
        wait_until(lambda known=known: len(bed.runs("v4")) > known, "a run")  # type: ignore[misc]
        time.sleep(kill * 0.3)
        operator.kill()
        state = bed.state()
        assert len(bed.ran("v4")) <= state["limits"][state["step"]]
    operator = bed.start()
    bed.await_all("v4")
    assert operator.stop() == 0


@pytest.mark.nightly
def test_windows_holds_pauses_and_approvals_delay_single_objects(bed: Bed, things: Things) -> None:
    bed.populate({"steps": ["100%"]}, count=6)
    bed.version("v2")
    now = datetime.now(UTC)
    closed = {"from": f"{now + timedelta(hours=2):%H:%M}", "to": f"{now + timedelta(hours=3):%H:%M}"}
    bed.watch({"steps": ["100%"], "windows": [closed]})
    annotate = "ansible.sdk.operatorframework.io/"
    things.merge(name(0), {"metadata": {"annotations": {ROLLOUT: "hold"}}})
    things.merge(name(1), {"metadata": {"annotations": {f"{annotate}paused": "true"}}})
    things.merge(name(2), {"metadata": {"annotations": {f"{annotate}mode": "approve"}}})
    operator = bed.start()
    bed.await_updated(5, "Waiting", "for a window, which opens at")
    bed.await_updated(0, "Waiting", "holds it")
    bed.stays("v2", set())
    assert operator.stop() == 0

    bed.watch({"steps": [1, "100%"], "windows": [{"from": "00:00", "to": "24:00"}]})
    things.merge(name(5), {"metadata": {"annotations": {ROLLOUT: "now"}}})
    operator = bed.start()
    wait_until(lambda: bed.ran("v2") >= names(3, 4, 5), "all others")
    assert bed.runs("v2")[0] == name(5)
    things.await_condition(name(2), "Planned")
    bed.stays("v2", names(3, 4, 5))
    assert not bed.state()["ended"], "the object that waits for an approval"
    plan = things.get(name(2))["status"]["plan"]["hash"]
    things.merge(name(2), {"metadata": {"annotations": {f"{annotate}approve": plan}}})
    wait_until(lambda: bed.state()["ended"], "the end")
    assert bed.ran("v2") == names(2, 3, 4, 5)
    things.merge(name(0), {"metadata": {"annotations": {ROLLOUT: None}}})
    things.merge(name(1), {"metadata": {"annotations": {f"{annotate}paused": None}}})
    wait_until(lambda: bed.ran("v2") == names(0, 1, 2, 3, 4, 5), "the objects that were left out")
    assert operator.stop() == 0


@pytest.mark.nightly
def test_the_next_leader_continues_the_step_of_a_killed_one(bed: Bed) -> None:
    bed.populate({"steps": [3]}, count=8)
    bed.version("v2")
    bed.gate.unlink()
    flags = (
        "--leader-elect",
        "--leader-election-id=rollouts",
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=3s",
    )
    leader = bed.start(*flags, replica="a")
    wait_until(lambda: len(bed.ran("v2")) == 3, "the runs of the first step")
    other = bed.start(*flags, replica="b", ready=False)
    leader.kill()
    wait_until(lambda: len(bed.runs("v2")) == 6, "the runs of the same objects by the next leader")
    bed.stays("v2", names(0, 1, 2))
    bed.gate.touch()
    bed.await_all("v2")
    assert other.stop() == 0


@pytest.mark.full
def test_a_user_pauses_resumes_and_restarts_a_rollout_and_unchanged_objects_run_again(bed: Bed) -> None:
    bed.populate({"steps": [1, "100%"]}, count=5, skipUnchanged=True)
    bed.command("pause")
    bed.version("v2")
    operator = bed.start()
    bed.await_updated(0, "RolloutPaused", "a user paused it")
    bed.stays("v2", set())
    bed.command("resume")
    bed.await_all("v2")
    assert "Thing: ended" in bed.command("status", "--watch")
    bed.command("restart")
    assert "5 of 5 objects ran the content" in bed.command("status", "--watch"), "the end of the new rollout"
    assert sorted(bed.runs("v2")[5:]) == sorted(names(*range(5)))
    assert bed.runs("v2")[5] == name(0), "the first step"
    assert operator.stop() == 0


@pytest.mark.nightly
@pytest.mark.xdist_group("browser")
def test_the_page_shows_the_steps_of_a_rollout_and_leads_to_the_object_that_stopped_it(
    bed: Bed, reader: Reader
) -> None:
    bed.populate({"steps": [1, "100%"]}, count=3)
    bed.version("v2", failing=(name(0),))
    operator = bed.start()
    bed.await_updated(2, "RolloutPaused")
    reader.open(operator.await_line("Serving the status page")["url"])
    reader.await_text("Rollouts", "1 of 2", "1, 3", "paused")
    (row,) = [row for row in reader.rows() if "1 of 2" in row]
    assert name(0) in row[-1]
    reader.script(
        "[...document.querySelectorAll('a')].find((each) => each.innerText.endsWith(arguments[0])).click()", name(0)
    )
    reader.await_text("Updated", "The run failed")
    assert operator.stop() == 0
