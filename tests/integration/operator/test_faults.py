"""The operator when its surroundings fail: nothing hangs, nothing is lost, nothing is left behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Things
    from tests.kit.operator import Project

COUNT = """
    - name: Count this run
      ansible.builtin.lineinfile:
        path: "{{ lookup('env', 'NOTES') }}"
        line: "{{ ansible_operator_meta.name }} {{ size }} {{ lookup('pipe', 'date +%s%N') }}"
        create: true
        mode: "0600"
"""

HOLD = """
    - name: Wait to be let on
      ansible.builtin.wait_for:
        path: "{{ lookup('env', 'NOTES') }}.go"
        timeout: 120
"""


@pytest.mark.full
def test_an_outage_of_the_api_server_loses_no_result_repeats_no_finalizer_and_costs_nothing_but_time(
    project: Project, things: Things, devcluster: DevCluster
) -> None:
    hold = HOLD.replace(".go", ".{{ ansible_operator_meta.name }}")
    project.role("thing", f"{hold}      when: held | default(false)\n{COUNT}")
    project.role("goodbye", hold)
    project.watch("thing", finalizer={"name": "test.example.com/finalizer", "role": "goodbye"})
    operator = project.start(environment={"NOTES": str(project.folder / "notes")})
    for name in ("one", "two", "finalized"):
        things.create(name, {"size": 1})
    for name in ("one", "two", "finalized"):
        things.await_success(name)
    things.create("held", {"size": 1, "held": True})
    operator.await_line("Run started", name="held")
    devcluster.stop_apiserver()
    (project.folder / "notes.held").touch()
    operator.await_line("Run ended", name="held")
    wait_until(lambda: operator.lines(msg="Cannot write the status; retrying"), "the write to fail")
    time.sleep(10)  # the length of the outage is what is tested
    assert operator.process.poll() is None
    devcluster.start_apiserver()
    things.await_success("held")
    assert len(operator.runs("held")) == 1
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")
    assert [run["reason"] for run in operator.runs("one")] == ["created", "changed"]
    assert len(operator.runs("two")) == 1

    things.delete("finalized")
    operator.await_line("Run started", name="finalized", reason="deleted")
    things.await_reason("finalized", "Running", "Running")
    devcluster.pause("kube-apiserver")
    (project.folder / "notes.finalized").touch()
    operator.await_line("Run ended", name="finalized", reason="deleted")
    devcluster.restart_apiserver()
    things.await_gone("finalized")
    assert [run["reason"] for run in operator.runs("finalized")] == ["created", "deleted"]


@pytest.mark.full
def test_many_conflicts_delay_no_run_and_lose_no_condition_of_other_writers(project: Project, things: Things) -> None:
    project.role("thing", COUNT)
    project.watch("thing", finalizer={"name": "test.example.com/finalizer", "role": "thing"})
    project.start(environment={"NOTES": str(project.folder / "notes")})
    calm = threading.Event()
    written = 0

    def write_without_end() -> None:
        nonlocal written
        while not calm.is_set():
            written += 1
            if not things.get("one"):
                continue
            things.merge("one", {"metadata": {"labels": {"storm": str(written)}}})
            things.merge("one", {"status": {"counter": written}}, "status")

    storm = threading.Thread(target=write_without_end)
    things.create("one", {"size": 1})
    things.merge("one", {"status": {"conditions": [{"type": "Ready", "status": "True", "mine": 1}]}}, "status")
    storm.start()
    try:
        things.merge("one", {"spec": {"size": 2}})
        things.await_success("one")
        wait_until(lambda: written > 50, "the storm to have blown for some time")
        things.merge("one", {"spec": {"size": 3}})
        things.await_success("one")
    finally:
        calm.set()
        storm.join()
    obj: dict[str, Any] = things.get("one")
    assert {"type": "Ready", "status": "True", "mine": 1} in obj["status"]["conditions"]
    assert obj["status"]["counter"] > 10
    assert written > 50
    things.delete("one")
    things.await_gone("one")
