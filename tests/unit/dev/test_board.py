"""What `ansible-operator dev` tells of a running operator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.dev.board import KindSample, LiveView, samples
from runner.monitoring.metrics import Metrics
from runner.objects import GVK, ObjectKey
from runner.workqueue.concurrency import ConcurrencyLimit
from runner.workqueue.queue import Dispatcher, WorkQueue
from runner.workqueue.request import RunReason

KIND = "cache.example.com/v1alpha1, Kind=Memcached"
RUN = {"level": "info", "job": "1", "gvk": KIND, "namespace": "default", "name": "mc"}
ENDED = {"msg": "Run ended", "outcome": "succeeded", "seconds": 1.23, "ok": 3, "changed": 1, "error": None}


@pytest.fixture
def board() -> LiveView:
    return LiveView()


def take(board: LiveView, **fields: Any) -> str | None:
    return board.take(json.dumps({**RUN, **fields}) + "\n")


def test_a_run_is_told_by_its_reason_its_tasks_and_its_end(board: LiveView) -> None:
    assert take(board, msg="Run started", reason="created") == "Memcached default/mc: run started, created"
    assert take(board, msg="Task output", task="Say it") == "Memcached default/mc: task 1: Say it"
    assert take(board, msg="Task output", task="Say it") is None
    assert take(board, msg="Task output", task="Again") == "Memcached default/mc: task 2: Again"
    assert take(board, **ENDED) == "Memcached default/mc: succeeded in 1.2 s, ok 3, changed 1"


def test_a_failure_is_told_with_its_place_and_stays_in_the_picture(board: LiveView) -> None:
    told = take(board, msg="Task failed", level="error", task="Say it", error="no such thing", path="main.yml:3")
    assert told == "error: Memcached default/mc: Task failed: no such thing (main.yml:3)"
    picture = board.picture(120)
    assert picture[picture.index("LAST ERROR") + 1] == told


def test_the_picture_shows_kinds_queues_and_the_runs_that_go_on(board: LiveView) -> None:
    take(board, msg="Watching")
    take(board, msg="Run started", reason="created")
    take(board, msg="Task output", task="Say it")
    board.count([KindSample(KIND, queued=2, objects=5)])
    picture = board.picture(120)
    assert picture[1].split()[-4:] == ["5", "2", "0", "0"]
    assert "  Memcached default/mc  task 1: Say it" in picture
    take(board, **ENDED)
    picture = board.picture(120)
    assert picture[1].split()[-4:] == ["5", "2", "1", "0"]
    assert picture[picture.index("RUNS") + 1] == "  none"


def test_the_picture_is_as_wide_as_the_terminal(board: LiveView) -> None:
    take(board, msg="Check the configuration", level="warning", detail="word " * 100)
    assert max(map(len, board.picture(60))) <= 60


@pytest.mark.parametrize(
    "line", ["", "----- Ansible Task StdOut -----", "{broken", '"text"', '{"msg": "Serving the proxy"}']
)
def test_what_is_no_line_of_interest_is_left_out(board: LiveView, line: str) -> None:
    assert board.take(line) is None


def test_an_edit_that_is_not_applied_is_an_error(board: LiveView) -> None:
    message = "The edit is invalid and not applied; fix it"
    line = {"level": "error", "msg": message, "problem": "watches.yaml:1: is wrong"}
    assert board.take(json.dumps(line)) == f"error: {message}: watches.yaml:1: is wrong"


def test_where_metrics_are_is_learned_from_the_log(board: LiveView) -> None:
    board.take(json.dumps({"msg": "Serving", "paths": ["/healthz"], "port": 1}))
    assert board.metrics_port is None
    board.take(json.dumps({"msg": "Serving", "paths": ["/metrics"], "port": 2}))
    assert board.metrics_port == 2


@pytest.mark.asyncio
async def test_metrics_are_read_as_the_operator_writes_them() -> None:
    gvk = GVK("cache.example.com", "v1alpha1", "Memcached")
    metrics, queue = Metrics(), WorkQueue(ConcurrencyLimit.of(1), Dispatcher(ConcurrencyLimit.of(1)))
    queue.add(ObjectKey("default", "mc"), RunReason.CREATED)
    metrics.add_kind(gvk, queue, 1)
    metrics.objects.labels(str(gvk)).set(4)
    assert samples((await metrics.text()).decode()) == [KindSample(KIND, queued=1, objects=4)]
