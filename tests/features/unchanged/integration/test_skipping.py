"""`skipUnchanged`: after a restart, and for a period, only what differs is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runner.values.objects import RUN_REQUESTED
from tests.kit.tasks import keep
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

LAST_RUN = "ansible.sdk.operatorframework.io/last-run"
READS = """
- ansible.builtin.fail: {msg: "as told"}
  when: broken | default(false)
- kubernetes.core.k8s_info: {kind: ConfigMap, name: settings, namespace: "{{ ansible_operator_meta.namespace }}"}
  when: reads | default(false)
"""


class Bed:
    """A project whose watch skips, its objects, and restarts of its operator."""

    def __init__(self, project: Project, things: Things, api: Api) -> None:
        self.project, self.things, self.api = project, things, api
        self.maps = f"/api/v1/namespaces/{project.namespace}/configmaps"
        self.role("first")
        referred = {"group": "", "version": "v1", "kind": "ConfigMap", "path": "spec.settings"}
        project.watch("writes", skipUnchanged=True, references=[referred])
        for name in ("settings", "changes"):
            api.call("POST", self.maps, {"metadata": {"name": name}, "data": {"a": "1"}})
        self.operator = project.start("--engine=warm")

    def role(self, value: str) -> None:
        self.project.role("writes", READS + keep("the value", "ConfigMap", fields={"data": {"value": value}}))

    def record(self, name: str) -> str | None:
        obj = self.things.get(name)
        found: str | None = obj["metadata"].get("annotations", {}).get(LAST_RUN)
        return found

    def run_once(self, *names: str, **specs: dict[str, Any]) -> None:
        """Create objects, most with an empty spec, and wait for the records of their runs."""
        objects = {**{name: {} for name in names}, **specs}
        for name, spec in objects.items():
            self.things.create(name, spec)
        for name in objects:
            self.things.await_success(name)
            wait_until(lambda name=name: self.is_recorded(name), "the record of a run")  # type: ignore[misc]

    def is_recorded(self, name: str) -> bool:
        """Return whether a run is on record; if the log says that one is not, request another one.

        The first run has no record if it ends before the watch of its ConfigMap has begun.
        """
        if missing := self.operator.lines("The next periodic run is not skipped", name=name):
            self.things.merge(name, {"metadata": {"annotations": {RUN_REQUESTED: str(len(missing))}}})
        return self.record(name) is not None

    def restart(self, *flags: str) -> Operator:
        assert self.operator.stop() == 0
        self.operator = self.project.start("--engine=warm", *flags)
        return self.operator

    def ran_because(self, name: str) -> str:
        """Why an object is run after a restart."""
        self.operator.await_line("Run ended", name=name)
        # The first: what fails is tried again.
        return str(self.operator.lines(msg="Run started", name=name)[0]["details"])


@pytest.fixture
def bed(project: Project, things: Things, api: Api) -> Bed:
    return Bed(project, things, api)


@pytest.mark.full
def test_only_objects_that_differ_run_after_a_restart_or_a_period_and_a_failure_is_not_on_record(bed: Bed) -> None:
    bed.run_once("one", "two", "edited", refers={"settings": "changes"}, reads={"reads": True})
    bed.things.create("bad", {"broken": True})
    bed.things.await_condition("bad", "Failure")
    assert bed.operator.stop() == 0
    bed.api.call("DELETE", f"{bed.maps}/two")
    bed.things.merge("edited", {"spec": {"more": 1}})
    for name in ("changes", "settings"):
        bed.api.call("PATCH", f"{bed.maps}/{name}", {"data": {"a": "2"}}, "application/merge-patch+json")

    bed.operator = bed.project.start("--engine=warm")
    assert bed.operator.await_line("Run skipped", name="one")["reason"] == "present at start"
    assert "an owned object has changed" in bed.ran_because("two")
    assert "the object has changed" in bed.ran_because("edited")
    assert "a reference of the object has changed" in bed.ran_because("refers")
    assert "configmaps/settings" in bed.ran_because("reads")
    assert "no successful run is on record" in bed.ran_because("bad")
    assert bed.api.call("GET", f"{bed.maps}/two") is not None
    assert not bed.operator.runs("one")

    before = bed.record("one")
    bed.role("second")
    bed.restart("--reconcile-period=2s")
    assert "the role, playbook or settings have changed" in bed.ran_because("one")
    wait_until(lambda: bed.record("one") != before, "the record of the second run")
    bed.operator.await_line("Run skipped", name="one", reason="periodic resync")
    assert len(bed.operator.runs("one")) == 1
    bed.things.merge("one", {"spec": {"broken": True}})
    bed.things.await_condition("one", "Failure")
    wait_until(lambda: bed.record("one") is None, "the record to be taken off")
