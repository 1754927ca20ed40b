"""What people do is served whatever background work is going on, in the same kind and in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.objects import MEMCACHED, memcacheds
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

GATED = """
    - ansible.builtin.wait_for:
        path: "{{ gate }}"
        timeout: 300
      when: gated | default(false)
"""


@pytest.mark.full
def test_changes_are_served_while_all_that_was_present_at_start_hangs(
    project: Project, things: Things, api: Api
) -> None:
    gate = project.folder / "gate"
    project.role("gated", GATED)
    project.watch("gated", vars={"gate": str(gate)})
    project.watch("gated", **MEMCACHED)
    for number in range(6):
        things.create(f"present-{number}", {"gated": True})
    operator = project.start("--max-concurrent-reconciles=2")
    wait_until(lambda: operator.lines(msg="Run started", reason="present at start"), "a background run")

    things.create("new", {})
    things.await_success("new")
    memcacheds(api, project.namespace).create("new", {"size": 1})
    wait_until(lambda: operator.runs("new")[1:], "the other kind's run")
    # A change moves up what still waits for its first run.
    things.merge("present-5", {"spec": {"gated": False}})
    things.await_success("present-5")

    assert not [line for line in operator.lines(msg="Run ended") if line["reason"] == "present at start"]
    assert len(operator.lines(msg="Run started", reason="present at start")) == 1
    gate.touch()
    for number in range(6):
        things.await_success(f"present-{number}")
    assert [len(operator.runs(f"present-{number}")) for number in range(6)] == [1] * 6
