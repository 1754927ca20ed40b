"""Lines of `ansible-runner worker`, the files that keep them, and the log of the pod."""

from __future__ import annotations

import json
import math
import os
import resource
import runpy
import signal
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.core.proxy.handlers.authenticate import kubeconfig
from runner.engines.pod import spool, stream
from runner.engines.pod.execution import PodExecution
from runner.engines.pod.spool import Frame, Space, Spool
from runner.engines.pod.stream import MalformedLineError, WorkerOutput, mark_of
from tests.kit.forks import in_a_fork

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


def test_numbers_and_text_that_are_no_json_but_that_ansible_writes_are_read_as_the_status_can_contain_them() -> None:
    result = b'{"res": {"x": NaN, "y": -Infinity}}'
    line = b'{"project_update_id": %d, "event": "e", "uuid": "a", "stdout": "\\udcff", "event_data": %s}'
    event = _output().line(line % (NUMBER, result))
    assert event is not None
    assert event["stdout"] == "?"
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


LINES = [Frame(1, b'{"a": 1}', end=False), Frame(2, b"", end=False), Frame(3, b"{}", end=True)]


def test_an_operator_finds_the_lines_that_its_predecessor_applied(tmp_path: Path) -> None:
    for line in LINES:
        Spool(tmp_path / "run", "one").add(line)
    assert list(Spool(tmp_path / "run", "one").lines()) == LINES
    assert list(Spool(tmp_path / "run", "other").lines()) == []
    assert list((tmp_path / "run").iterdir()) == []


def test_an_incomplete_last_line_is_dropped_and_written_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    (file,) = [tmp_path / ".received-one"]
    spool.add(LINES[0])
    whole = file.read_bytes()
    spool.add(LINES[2])
    size = len(file.read_bytes())
    for cut in range(len(whole) + 1, size):
        file.write_bytes(file.read_bytes()[:cut])
        spool = Spool(tmp_path, "one")
        assert list(spool.lines()) == LINES[:1]
        assert file.read_bytes() == whole
        spool.add(LINES[2])
    assert list(spool.lines()) == [LINES[0], LINES[2]]


@pytest.mark.parametrize("room", [0, 3, 40])
def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, room: int) -> None:
    def act() -> object:
        spool = Spool(tmp_path, "one")
        spool.add(LINES[0])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / ".received-one").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, size + room))
        try:
            spool.add(Frame(2, b"x" * 100, end=False))
        except OSError:
            return list(spool.lines()) == LINES[:1]
        return "written"

    assert in_a_fork(act) == "True"


def test_a_line_that_an_operator_did_not_survive_is_marked_for_the_next_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "one")
    for line in LINES[:2]:
        spool.add(line)
    spool.mark(2)
    assert Spool(tmp_path, "one").marked == 2
    spool.mark(0)
    assert Spool(tmp_path, "one").marked == 0
    spool.mark(1)
    assert Spool(tmp_path, "two").marked == 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_needs_more_than_its_share_of_the_space_fails_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_OF_LINE", 0)
    space = Space(1000)
    greedy, other = (Spool(tmp_path / name, "one", space) for name in ("greedy", "other"))
    greedy.add(Frame(1, b"x" * 800, end=False))
    other.add(Frame(1, b"x" * 300, end=False))
    with pytest.raises(OSError, match="more than its share"):
        greedy.add(Frame(2, b"x", end=False))
    other.add(Frame(2, b"x" * 100, end=False))
    greedy.remove()
    other.add(Frame(3, b"x" * 500, end=False))
    assert [line.number for line in Spool(tmp_path / "other", "one").lines()] == [1, 2, 3]


def test_many_small_lines_need_space_too(tmp_path: Path) -> None:
    lines = Spool(tmp_path, "one", Space(20_000))
    for number in range(1, 10):
        lines.add(Frame(number, b"", end=False))
    with pytest.raises(OSError, match="more than its share"):
        lines.add(Frame(10, b"", end=False))


def test_control_characters_are_visible_in_the_log_of_a_pod() -> None:
    acknowledged: list[tuple[int, str]] = []
    link = SimpleNamespace(acknowledge=lambda number, text: acknowledged.append((number, text)))
    execution: Any = SimpleNamespace(link=link, _pending=deque([7, 8]))
    PodExecution.shown(execution, {"stdout": "\x1b[31mchanged\x1b[0m \x1b[2J\x1b]0;title\x07 \u202e\r\nnext"})
    PodExecution.shown(execution, {"stdout": ""})
    assert acknowledged == [(7, "changed \\x1b[2J\\x1b]0;title\\x07 \\u202e\nnext\n"), (8, "")]
