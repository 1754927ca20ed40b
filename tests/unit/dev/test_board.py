"""The display of a running operator by `ansible-operator dev`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.core.queue import reasons
from runner.core.queue.concurrency import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile.metrics import Metrics
from runner.sdk.dev.board import KindSample, LiveView, samples
from runner.values.objects import GVK, ObjectKey

KIND = "cache.example.com/v1alpha1, Kind=Memcached"
RUN = {"level": "info", "job": "1", "gvk": KIND, "namespace": "default", "name": "mc"}
ENDED = {"msg": "Run ended", "outcome": "succeeded", "seconds": 1.23, "ok": 3, "changed": 1, "error": None}


@pytest.fixture
def board() -> LiveView:
    return LiveView()


def take(board: LiveView, **fields: Any) -> str | None:
    return board.take(json.dumps({**RUN, **fields}) + "\n")


def test_a_run_has_lines_for_its_reason_its_tasks_and_its_end(board: LiveView) -> None:
    assert take(board, msg="Run started", reason="created") == "Memcached default/mc: run started, created"
    assert take(board, msg="Task output", task="Say it") == "Memcached default/mc: task 1: Say it"
    assert take(board, msg="Task output", task="Say it") is None
    assert take(board, msg="Task output", task="Again") == "Memcached default/mc: task 2: Again"
    assert take(board, **ENDED) == "Memcached default/mc: succeeded in 1.2 s, ok 3, changed 1"


def test_a_failure_is_shown_with_its_place_and_stays_on_the_screen(board: LiveView) -> None:
    shown = take(board, msg="Task failed", level="error", task="Say it", error="no such thing", path="main.yml:3")
    assert shown == "error: Memcached default/mc: Task failed: no such thing (main.yml:3)"
    picture = board.picture(120)
    assert picture[picture.index("LAST ERROR") + 1] == shown


def test_a_warning_about_a_whole_kind_names_it(board: LiveView) -> None:
    about = {"level": "warning", "msg": "Not served", "name": None, "namespace": None, "error": "install its CRD"}
    assert take(board, **about) == "warning: Memcached: Not served: install its CRD"


def test_the_screen_shows_kinds_queues_and_active_runs(board: LiveView) -> None:
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


def test_a_run_before_its_first_task_is_shown_with_its_reason(board: LiveView) -> None:
    take(board, msg="Run started", reason="created")
    assert "  Memcached default/mc  created" in board.picture(120)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('ok: [localhost] => {\n    "msg": "Hello => {you}"\n}', "Hello => {you}"),
        ('ok: [localhost] => (item={"a": 1}) => {\n    "msg": "one"\n}', "one"),
        ('ok: [localhost] => {\n    "size": [1, 2]\n}', '{"size": [1, 2]}'),
        ("ok: [localhost] =>\n    msg: Hello", "ok: [localhost] => msg: Hello"),
    ],
)
def test_messages_of_debug_tasks_are_shown(board: LiveView, output: str, message: str) -> None:
    take(board, msg="Run started", reason="created")
    of_task = {"msg": "Task output", "task": "Say it", "action": "ansible.builtin.debug"}
    shown = take(board, **of_task, ansible_event="runner_on_ok", output=output)
    assert shown == f"Memcached default/mc: {message}"
    assert "  Memcached default/mc  task 1: Say it" in board.picture(120)


def test_the_address_of_the_status_page_is_shown_once(board: LiveView) -> None:
    line = json.dumps({"msg": "Serving the status page", "level": "info", "url": "http://127.0.0.1:4321/"})
    assert board.take(line) == "status page http://127.0.0.1:4321/"
    assert board.take(line) is None


@pytest.mark.parametrize("height", range(1, 40))
def test_the_picture_is_as_high_as_it_may_and_ends_with_the_newest_event(board: LiveView, height: int) -> None:
    take(board, msg="Task failed", level="error", task="Say it", error="no such thing " * 40)
    for number in range(12):
        board.take(json.dumps({"msg": "Watching", "level": "info", "gvk": f"g/v1, Kind=K{number:02}"}))
    picture = board.picture(70, height)
    assert len(picture) <= height
    assert picture[-1] == "  watching g/v1, Kind=K11"


def test_the_picture_is_as_wide_as_the_terminal(board: LiveView) -> None:
    take(board, msg="Check the configuration", level="warning", detail="word " * 100)
    take(board, **ENDED)
    picture = board.picture(60)
    assert max(map(len, picture)) <= 60
    assert picture[0].endswith("FAILED")
    assert picture[1].split()[-4:] == ["0", "0", "1", "0"]


@pytest.mark.parametrize(
    "line", ["", "----- Ansible Task StdOut -----", "{broken", '"text"', '{"msg": "Serving the proxy"}']
)
def test_other_lines_are_not_shown(board: LiveView, line: str) -> None:
    assert board.take(line) is None


def test_the_port_of_metrics_is_read_from_the_log(board: LiveView) -> None:
    board.take(json.dumps({"msg": "Serving", "paths": ["/healthz"], "port": 1}))
    assert board.metrics_port is None
    board.take(json.dumps({"msg": "Serving", "paths": ["/metrics"], "port": 2}))
    assert board.metrics_port == 2


@pytest.mark.asyncio
async def test_metrics_are_read_as_the_operator_writes_them() -> None:
    gvk = GVK("cache.example.com", "v1alpha1", "Memcached")
    metrics, queue = Metrics(), WorkQueue(ConcurrencyLimit.of(1), Dispatcher(ConcurrencyLimit.of(1)))
    queue.add(ObjectKey("default", "mc"), reasons.CREATED)
    metrics.add_kind(gvk, queue)
    metrics.objects.labels(str(gvk)).set(4)
    assert samples((await metrics.text()).decode()) == [KindSample(KIND, queued=1, objects=4)]
