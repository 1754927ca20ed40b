"""Lines of `ansible-runner worker`."""

from __future__ import annotations

import json
import math

import pytest

from runner.pods.stream import MalformedLineError, WorkerOutput


def _line(**value: object) -> bytes:
    return json.dumps(value).encode()


def test_events_and_the_result_of_a_run_are_read() -> None:
    output = WorkerOutput()
    assert output.line(_line(status="starting", command=["ansible-playbook"])) is None
    event = {"event": "runner_on_ok", "uuid": "a", "counter": 1, "stdout": "ok"}
    assert output.line(_line(**event)) == event
    assert output.line(_line(event="keepalive", counter=0, uuid=0)) is None
    assert output.code is None
    assert output.line(_line(status="failed")) is None
    assert output.line(_line(eof=True)) is None
    assert output.code == 2


def test_numbers_and_text_that_are_no_json_but_that_ansible_writes_are_read() -> None:
    result = b'{"res": {"x": NaN, "y": -Infinity}}'
    event = WorkerOutput().line(b'{"event": "e", "uuid": "a", "stdout": "\\udcff", "event_data": %s}' % result)
    assert event is not None
    assert event["stdout"] == "\udcff"
    assert event["event_data"]["res"]["y"] == -math.inf
    assert math.isnan(event["event_data"]["res"]["x"])


@pytest.mark.parametrize(
    "line",
    [b"Traceback", b"[]", b'{"event": 1, "uuid": "a"}', b'{"event": "x"}', b'{"zipfile": -1}', b"\xff", b"[" * 100_000],
)
def test_what_ansible_runner_does_not_send_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedLineError):
        WorkerOutput().line(line)
