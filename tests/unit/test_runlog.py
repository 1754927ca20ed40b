"""What the log says of the rights that runs lacked."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from runner.engine.blocks import BlockWriter
from runner.engine.job import Job, Outcome, RunResult
from runner.kube.forbidden import MissingRight
from runner.proxy.identity import RunStats
from runner.runlog import RunLog
from runner.workqueue import Reason, Request


@pytest.fixture
def ended(make_job: Callable[..., Job]) -> Callable[..., list[str]]:
    """Have a run end that lacked the right to read some kinds; return what was said of that."""
    run_log = RunLog("nothing", BlockWriter(io.StringIO()), whole_output=False)
    job = make_job()

    def end(outcome: Outcome, *kinds: str) -> list[str]:
        stats = RunStats()
        for kind in kinds:
            stats.lacks(MissingRight("me", "get", "", kind, "ns", "", ""))
        with capture_logs() as logs:
            record = run_log.start(job, Request(job.key, Reason.CREATED, (), 0, 0, 0.0))
            record.end(RunResult(outcome, None, (), "", None, 1.0), stats)
        said = [line for line in logs if line["event"].startswith("A right is missing")]
        return [f"{line['log_level']} {line.get('error') or line['problem']}".split(" in ")[0] for line in said]

    return end


def test_each_failure_says_what_it_lacked(ended: Callable[..., list[str]]) -> None:
    for _ in range(2):
        assert ended(Outcome.FAILED, "pods", "secrets") == [
            "error forbidden: get pods",
            "error forbidden: get secrets",
        ]


def test_what_runs_can_do_without_is_said_once(ended: Callable[..., list[str]]) -> None:
    assert ended(Outcome.SUCCEEDED, "pods") == ["warning forbidden: get pods"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == ["warning forbidden: get secrets"]
    assert ended(Outcome.SUCCEEDED, "pods", "secrets") == []
    assert ended(Outcome.FAILED, "pods") == ["error forbidden: get pods"]
