"""The live view of `ansible-operator dev`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from runner.base.console import Line
from runner.sdk.dev.board import LiveView

KIND = "cache.example.com/v1alpha1, Kind=Memcached"
RUN = {"level": "info", "job": "1", "gvk": KIND, "namespace": "default", "name": "mc"}
ENDED = {"msg": "Run ended", "outcome": "succeeded", "seconds": 1.23, "ok": 3, "changed": 1, "error": None}
START = {"msg": "Task output", "ansible_event": "playbook_on_task_start", "output": ""}
INVALID = "The project is invalid; no run starts until you fix it"
EDITED = "The project was edited; the operator starts again"
ENV = ". /root/.local/state/ansible-operator/clusters/dev-cache-operator/run/env"
APPLY = "  kubectl apply -f config/samples/cache_v1alpha1_memcached.yaml"
PLACE = "/work/cache-operator/roles/memcached/tasks/main.yml:51"
CAUSE = f"'replicaz' is undefined (did you mean replicas?)\n(task 'Deploy', {PLACE})"
RETRY = {"stage": "delayed", "reason": "retry", "seconds": 12.2}
SIZES = [(60, 14), (120, 39), (200, 59)]


@pytest.fixture
def view() -> LiveView:
    return LiveView((f"For kubectl, in another terminal: {ENV}", "Log: /tmp/dev.log"), ("No object:", ENV, APPLY))


def take(view: LiveView, **fields: Any) -> str | None:
    shown = view.take(json.dumps({**RUN, **fields}) + "\n")
    return shown.text if shown else None


def begin(view: LiveView) -> None:
    general = {"gvk": None, "name": None, "namespace": None}
    take(view, msg="Starting", server="v1.35", url="https://127.0.0.1:1", ansible_core="2.21", **general)
    take(view, msg="Serving the status page", url="http://127.0.0.1:4321/", **general)


def obj(name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "Memcached", "namespace": "default", "name": name, "state": state, **fields}


def show(
    view: LiveView, *objects: dict[str, Any], total: int | None = None, problem: str = "", waits: bool = False
) -> None:
    states = {state: sum(one["state"] == state for one in objects) for state in sorted({o["state"] for o in objects})}
    kinds = [{"kind": "Memcached", "states": states, "problem": problem, "waits": waits}]
    view.show({"kinds": kinds}, {"objects": objects, "total": len(objects) if total is None else total})


def text(view: LiveView, width: int = 120, height: int = 39) -> list[str]:
    return [line.text for line in view.picture(width, height)]


def failing(**fields: Any) -> dict[str, Any]:
    of_streak = {"failed_runs": 3, "failing_since": 1795988463.0, "message": CAUSE, "next": RETRY}
    return obj("mc", "failing", **{**of_streak, **fields})


def test_a_run_has_lines_for_its_reason_its_tasks_and_its_end(view: LiveView) -> None:
    assert take(view, msg="Run started", reason="created") == "Memcached default/mc: run started, created"
    assert take(view, **START, number=1, task="Say it") == "Memcached default/mc: task 1: Say it"
    assert take(view, **ENDED) == "Memcached default/mc: succeeded in 1.2 s, ok 3, changed 1"


@pytest.mark.parametrize(
    "line",
    ["", "----- Ansible Task StdOut -----", "{broken", '"text"', '{"msg": "Serving the proxy", "level": "info"}'],
)
def test_other_lines_are_not_shown(view: LiveView, line: str) -> None:
    assert view.take(line) is None
    assert "Serving" not in str(text(view))


def test_the_address_of_the_status_page_is_shown_once(view: LiveView) -> None:
    line = json.dumps({"msg": "Serving the status page", "level": "info", "url": "http://127.0.0.1:4321/"})
    shown = view.take(line)
    assert shown is not None
    assert shown.text == "Serving the status page: http://127.0.0.1:4321/"
    assert view.take(line) is None


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_first_seconds_are_not_blank(view: LiveView, width: int, height: int) -> None:
    assert text(view, width, height)[0] == "The operator starts …"


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_view_has_what_to_type_while_there_is_no_object(view: LiveView, width: int, height: int) -> None:
    begin(view)
    assert APPLY not in text(view, width, height)
    show(view)
    shown = text(view, width, height)
    assert shown[0].startswith("0 objects. ")
    assert shown[shown.index("No object:") + 1 :][:2] == [ENV, APPLY]
    show(view, obj("mc", "ready"))
    assert APPLY not in text(view, width, height)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_failing_object_has_its_cause_with_a_whole_path_and_the_time_of_its_retry(
    view: LiveView, width: int, height: int
) -> None:
    begin(view)
    show(view, failing(), *(obj(f"ok-{n}", "ready") for n in range(9)))
    shown = view.picture(width, height)
    joined = " ".join(" ".join(line.text.split()) for line in shown)
    assert "Memcached default/mc failing retry in 12 s, 3 failed runs since " in joined
    assert "'replicaz' is undefined (did you mean replicas?)" in joined
    assert [line.style for line in shown if PLACE in line.text] == ["error"]
    assert shown[0].text.startswith("10 objects: 1 failing, 9 ready. ")


def test_a_cause_goes_when_the_object_is_ready(view: LiveView) -> None:
    begin(view)
    show(view, failing())
    take(view, msg="Run ended", level="error", outcome="failed", seconds=1.0, error="no (task 'Deploy', main.yml:3)")
    assert "replicaz" in str(text(view))
    show(view, obj("mc", "ready", since="2026-11-29T22:41:03Z", message="Last reconciliation succeeded"))
    assert "replicaz" not in str(text(view))
    assert any(line.startswith("Memcached default/mc  ready  since ") for line in text(view))


def test_the_last_error_is_one_that_is_not_repaired(view: LiveView) -> None:
    begin(view)
    take(view, msg="Task failed", level="error", task="Deploy", error="no", path="main.yml:3")
    take(view, msg="Run ended", level="error", outcome="failed", seconds=1.0, error="no (task 'Deploy', main.yml:3)")
    take(view, msg="The project is invalid; no run starts until you fix it", level="error", problem="main.yml:3: tab")
    assert "tab" in view.last_error
    take(view, msg="The project was edited; the operator starts again", level="info")
    assert view.last_error == "Memcached default/mc: no (task 'Deploy', main.yml:3)"
    take(view, msg="Run ended", level="info", outcome="succeeded", seconds=1.0, ok=1, changed=0)
    assert view.last_error == ""


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        (failing(next={**RETRY, "stage": "waiting"}, failed_runs=0), "failing  waits for a worker"),
        (obj("mc", "ready", next={"stage": "delayed", "reason": "periodic resync", "seconds": 9e4}), "ready"),
        (obj("mc", "paused"), "paused"),
        (obj("mc", "being deleted", message=""), "being deleted"),
    ],
)
def test_the_row_of_an_object_has_its_state_and_what_follows(view: LiveView, fields: dict[str, Any], row: str) -> None:
    begin(view)
    show(view, fields)
    assert f"Memcached default/mc  {row}" in text(view)


def test_an_object_with_a_run_shows_its_task(view: LiveView) -> None:
    begin(view)
    take(view, msg="Run started", reason="created")
    assert "Memcached default/mc  running  created" in text(view)
    take(view, **START, number=4, task="Say it")
    take(view, **{**START, "ansible_event": "runner_on_failed"}, number=4, task="Say it")
    show(view, failing())
    assert any(line.startswith("Memcached default/mc  failing  task 4: Say it, 3 failed runs") for line in text(view))
    take(view, **ENDED)
    assert "task 4: Say it, 3" not in str(text(view))


def test_objects_that_do_not_fit_are_counted(view: LiveView) -> None:
    begin(view)
    show(view, *(obj(f"ok-{n}", "ready") for n in range(50)), total=300)
    shown = text(view, 60, 14)
    assert len(shown) == 14
    more = next(line for line in shown if line.startswith("… "))
    assert int(more.split()[1]) == 300 - sum(line.startswith("Memcached default/ok-") for line in shown)


@pytest.mark.parametrize(
    ("state", "problem"),
    [({"waits": True}, "waiting for its CRD"), ({"problem": "forbidden"}, "forbidden")],
)
def test_the_problem_of_a_kind_is_shown_until_it_is_repaired(
    view: LiveView, state: dict[str, Any], problem: str
) -> None:
    begin(view)
    show(view, **state)
    assert Line(f"Memcached: {problem}", "warning") in view.picture(60, 14)
    assert APPLY not in text(view, 60, 14)
    show(view)
    assert problem not in str(text(view))
    assert APPLY in text(view, 60, 14)


def test_a_project_is_invalid_until_it_is_repaired(view: LiveView) -> None:
    begin(view)
    take(view, msg=INVALID, level="error", gvk=None, name=None, namespace=None, problem="main.yml:3: a tab\n\n1 |\t")
    shown = text(view, 60, 14)
    assert shown[0] == "No run starts: the project is invalid"
    assert "main.yml:3: a tab 1 |" in " ".join(" ".join(line.split()) for line in shown[:6])
    take(view, msg=EDITED, gvk=None, name=None, namespace=None, why="main.yml")
    shown = text(view, 60, 14)
    assert shown[0] == "The operator starts again …"
    assert "a tab" not in str(shown[: shown.index("LATEST")])


def test_ctrl_c_names_the_runs_that_it_waits_for(view: LiveView) -> None:
    begin(view)
    other = deepcopy(view)
    assert other.stop(2.0) == Line("Stopping", "warning")
    take(view, msg="Run started", reason="created")
    take(view, **START, number=4, task="Wait long")
    sentence = "Stopping: waits up to 2 s for Memcached default/mc (task 4: Wait long). Ctrl-C again stops it now"
    assert view.stop(2.0) == Line(sentence, "warning")
    assert text(view)[0] == sentence


@pytest.mark.parametrize("width", [20, 60, 120])
@pytest.mark.parametrize("height", range(1, 40))
def test_the_picture_is_as_high_as_it_may_and_ends_with_the_newest_event(
    view: LiveView, width: int, height: int
) -> None:
    begin(view)
    show(view, failing(message="no such thing " * 40), *(obj(f"ok-{n}", "ready") for n in range(9)), problem="no CRD")
    take(view, msg="Odd", level="error", error="漢字" * 300 + " two\nlines")
    for number in range(12):
        view.take(json.dumps({"msg": "Watching", "level": "info", "gvk": f"g/v1,Kind=K{number:02}"}))
    picture = text(view, width, height)
    rows = sum(max(1, -(-sum(1 + (ord(one) > 0x3000) for one in line) // width)) for line in picture)
    assert rows <= height
    assert width < 60 or picture[-1].endswith("g/v1,Kind=K11")


def test_a_high_terminal_has_more_events(view: LiveView) -> None:
    begin(view)
    for number in range(60):
        take(view, msg="Watching", gvk=f"g/v1, Kind=K{number:02}", name=None)
    assert len([line for line in text(view, 120, 59) if "watching" in line]) > 45
    assert len(text(view, 120, 59)) == 59
