"""Lines of `ansible-runner worker`."""

from __future__ import annotations

import base64
import json

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


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_artifacts_are_skipped_whatever_they_contain(size: int) -> None:
    output = WorkerOutput()
    content = base64.b64encode(b'{"event": "x", "uuid": "y"}' * 100)[: (size + 2) // 3 * 4]
    assert output.line(_line(zipfile=size)) is None
    assert output.line(content + _line(status="successful")) is None
    assert output.code == 0


@pytest.mark.parametrize(
    "line", [b"Traceback", b"[]", b'{"event": 1, "uuid": "a"}', b'{"event": "x"}', b'{"zipfile": -1}', b"\xff"]
)
def test_what_ansible_runner_does_not_send_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedLineError):
        WorkerOutput().line(line)
