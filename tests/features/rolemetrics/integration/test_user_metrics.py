"""Metrics that a role makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project


def test_a_roles_metric_is_shown_among_the_operators_own_and_a_bad_one_fails_its_task(
    project: Project, things: Things
) -> None:
    project.role(
        "thing",
        """
        - name: Count
          operator_sdk.util.osdk_metric:
            name: things_made
            description: Things made
            counter: {increment: true}
        - name: Make it something else
          operator_sdk.util.osdk_metric:
            name: things_made
            description: Things made
            gauge: {set: 1}
          when: spoil is defined
        """,
    )
    # No further run of the bad one begins between the two counts.
    project.watch("thing", retry={"delay": "1h", "maxDelay": "1h"})
    operator = project.start()
    things.create("one", {})
    things.create("bad", {"spoil": True})
    things.await_success("one")
    failure = things.await_condition("bad", "Failure")["message"]
    assert failure.splitlines()[0].endswith("things_made is already a counter, not a gauge: use another name")
    text = operator.get("/metrics")
    (count,) = [line.split()[1] for line in text.splitlines() if line.startswith("things_made ")]
    assert float(count) == len(operator.lines(msg="Run started"))
    assert "ansible_operator_build_info{" in text
    assert 'rest_client_requests_total{code="200",' in text
    error = re.compile(r"^controller_runtime_reconcile_errors_total{.*} 1\.0$", re.MULTILINE)
    wait_until(lambda: error.search(operator.get("/metrics")), "the failed reconcile to be counted")
