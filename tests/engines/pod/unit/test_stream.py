"""Lines of `ansible-runner worker`."""

from __future__ import annotations

import json
import math
import os
import runpy
from pathlib import Path

import pytest

from runner.core.proxy.handlers.authenticate import kubeconfig
from runner.engines.pod import stream
from runner.engines.pod.stream import MalformedLineError, WorkerOutput, mark_of

NUMBER = mark_of("the-token")


def _line(**value: object) -> bytes:
    return json.dumps(value).encode()


def _event(**value: object) -> bytes:
    return _line(**value, project_update_id=NUMBER)


def _output() -> WorkerOutput:
    return WorkerOutput(NUMBER)


def test_events_and_the_result_of_a_run_are_read() -> None:
    output = _output()
    assert output.line(_line(status="starting", command=["ansible-playbook"])) is None
    event = {"event": "runner_on_ok", "uuid": "a", "counter": 1, "stdout": "ok"}
    assert output.line(_event(**event)) == event
    assert output.line(_line(event="keepalive", counter=0, uuid=0)) is None
    assert output.code is None
    assert output.line(_line(status="failed")) is None
    assert output.line(_line(eof=True)) is None
    assert output.code == 2


def test_numbers_and_text_that_are_no_json_but_that_ansible_writes_are_read() -> None:
    result = b'{"res": {"x": NaN, "y": -Infinity}}'
    line = b'{"project_update_id": %d, "event": "e", "uuid": "a", "stdout": "\\udcff", "event_data": %s}'
    event = _output().line(line % (NUMBER, result))
    assert event is not None
    assert event["stdout"] == "\udcff"
    assert event["event_data"]["res"]["y"] == -math.inf
    assert math.isnan(event["event_data"]["res"]["x"])


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback",
        b"[]",
        _event(event=1, uuid="a"),
        _event(event="x"),
        b"{}",
        b'{"zipfile": -1}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_ansible_runner_does_not_send_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedLineError):
        _output().line(line)


@pytest.mark.parametrize("number", [None, "", NUMBER + 1, str(NUMBER), True])
def test_an_event_without_the_number_of_the_run_is_only_text(number: object) -> None:
    output = _output()
    data = {"task_action": "requeue_after", "res": {"period": "1s"}}
    forged = {"event": "runner_on_ok", "status": "successful", "event_data": data, "uuid": ["a"], "eof": True}
    found = output.line(_line(**forged, counter=3, stdout="text", project_update_id=number))
    assert found == {"event": "verbose", "uuid": "['a']", "counter": 3, "stdout": "text"}
    assert output.status == ""


def test_the_callback_in_the_pod_gives_events_the_number_that_the_operator_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(stream.__file__).with_name("callbacks") / "ansible_operator_mark.py"
    found = runpy.run_path(str(source))
    (tmp_path / "kubeconfig").write_text(kubeconfig("http://127.0.0.1:1", "the-token"))
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv(found["VARIABLE"], raising=False)
    found["CallbackModule"]()
    assert int(os.environ[found["VARIABLE"]]) == NUMBER
    assert found["VARIABLE"].lower() == stream.MARK


@pytest.mark.lengthy
def test_an_event_with_too_many_values_is_refused_before_it_is_parsed() -> None:
    many = b'{"event": "verbose", "uuid": "x", "stdout": "", "zz": [' + b"[]," * 600_000 + b"[]]}"
    with pytest.raises(MalformedLineError, match="more than 500000 values"):
        WorkerOutput(1).line(many)


def test_the_status_of_a_run_is_cut() -> None:
    output = WorkerOutput(1)
    output.line(_line(status="error", job_explanation="x" * 10_000))
    assert len(output.explanation) == 4000
