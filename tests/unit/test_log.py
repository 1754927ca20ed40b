"""What a line of the log looks like: for programs, for people, and on a terminal."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, TextIO

import pytest

from runner.base import console, log
from runner.base.console import Line

pytestmark = pytest.mark.usefixtures("log_as_it_was")


class Reader:
    """Two ends of a terminal or a pipe: what is written to `stream` is read as text."""

    def __init__(self, stack: ExitStack, *, terminal: bool) -> None:
        self._reads, writes = os.openpty() if terminal else os.pipe()
        stack.callback(os.close, self._reads)
        self.stream: TextIO = stack.enter_context(os.fdopen(writes, "w"))

    def read(self) -> str:
        self.stream.flush()
        return os.read(self._reads, 1 << 16).decode()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_console_lines_have_colours_on_a_terminal(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Reader(stack, terminal=True)
    log.configure(level=logging.INFO, encoder="console", stream=terminal.stream)
    log.get("it", name="one").error("Run failed")
    assert re.fullmatch(r"\x1b\[31m\d\d:\d\d:\d\d error: Run failed name=one\x1b\[0m\r\n", terminal.read())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_console_lines_have_no_colours_if_the_user_wants_none(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    terminal = Reader(stack, terminal=True)
    log.configure(level=logging.INFO, encoder="console", stream=terminal.stream)
    log.get("it", name="one").error("Run failed", exc_info=ValueError("odd"))
    said = terminal.read()
    assert "\x1b" not in said
    assert "ValueError: odd" in said


def test_text_of_a_role_cannot_add_lines_or_escapes_to_the_console(stack: ExitStack) -> None:
    pipe = Reader(stack, terminal=False)
    log.configure(level=logging.INFO, encoder="console", stream=pipe.stream)
    log.get("it").error("Task failed", error="no\n[info     ] Run ended", task="\x1b[2J")
    said = pipe.read()
    assert said.count("\n") == 1
    assert said.endswith("error: Task failed: no [info ] Run ended task=\\x1b[2J\n")


def test_json_lines_are_objects_on_a_terminal_too(stack: ExitStack) -> None:
    terminal = Reader(stack, terminal=True)
    log.configure(level=logging.INFO, encoder="json", stream=terminal.stream)
    log.get("it", name="one").warning("Run ended", duration=1.5)
    fields = json.loads(terminal.read())
    del fields["ts"]
    assert fields == {"msg": "Run ended", "level": "warning", "logger": "it", "name": "one", "duration": 1.5}


def test_lines_below_the_level_are_dropped_and_warnings_of_libraries_are_logged(stack: ExitStack) -> None:
    pipe = Reader(stack, terminal=False)
    log.configure(level=logging.WARNING, encoder="json", stream=pipe.stream)
    log.get("it").info("Not this")
    log.get("it").debug("Nor this")
    logging.getLogger("library").info("Nor that")
    logging.getLogger("library").warning("But this")
    log.get("it").error("And that")
    assert [json.loads(line)["msg"] for line in pipe.read().splitlines()] == ["But this", "And that"]


def _logged(stack: ExitStack, error: Exception, *, library: bool) -> dict[str, object]:
    pipe = Reader(stack, terminal=False)
    log.configure(level=logging.INFO, encoder="json", stream=pipe.stream)

    def fail() -> None:
        raise error

    try:
        fail()
    except type(error):
        if library:
            logging.getLogger("library").exception("It failed")
        else:
            log.get("it").exception("It failed")
    said: dict[str, object] = json.loads(pipe.read())
    return said


@pytest.mark.parametrize("library", [False, True], ids=["ours", "a library's"])
def test_a_shortage_is_logged_with_its_name_and_advice_and_without_a_traceback(
    stack: ExitStack, *, library: bool
) -> None:
    said = _logged(stack, OSError(24, "Too many open files", "/a/file"), library=library)
    assert said["reason"] == "[Errno 24] Too many open files: '/a/file'"
    assert "ulimit -n" in str(said["advice"])
    assert "exception" not in said


@pytest.mark.parametrize("library", [False, True], ids=["ours", "a library's"])
def test_any_other_error_is_logged_with_its_traceback(stack: ExitStack, *, library: bool) -> None:
    said = _logged(stack, ValueError("odd"), library=library)
    assert said["exception"]
    assert "advice" not in said


def test_a_message_is_new_once_and_again_after_a_reset() -> None:
    logged = log.Once()
    assert [logged.is_new("a"), logged.is_new("b"), logged.is_new("a")] == [True, True, False]
    assert logged.reset("a")
    assert not logged.reset("a")
    assert logged.is_new("a")


def test_no_message_is_new_beyond_the_bound() -> None:
    logged = log.Once(most=2)
    assert [logged.is_new(key) for key in "abc"] == [True, True, False]


RUN = {"level": "info", "gvk": "cache.example.com/v1, Kind=Memcached", "namespace": "default", "name": "mc", "job": "1"}
TASK = {"msg": "Task output", "number": 4, "task": "Say it", "output": "TASK [Say it] ***"}
ENDED = {"msg": "Run ended", "outcome": "failed", "seconds": 1.23, "ok": 3, "changed": 1, "error": None}
DEBUG = {**TASK, "action": "ansible.builtin.debug", "ansible_event": "runner_on_ok"}


@pytest.mark.parametrize(
    ("fields", "text", "style"),
    [
        ({"msg": "Run started", "reason": "created"}, "run started, created", "active"),
        ({"msg": "Run started", "reason": "deleted"}, "finalizer started, deleted", "active"),
        (
            {"msg": "Run started", "reason": "dependent changed", "details": ["a", "b", "c", "d", "e"]},
            "run started, dependent changed: a, b, c and 2 more",
            "active",
        ),
        ({**TASK, "ansible_event": "playbook_on_task_start"}, "task 4: Say it", ""),
        ({**TASK, "ansible_event": "runner_on_failed"}, "", ""),
        ({**DEBUG, "output": 'ok: [localhost] => {\n    "msg": "Hello => {you}"\n}'}, "Hello => {you}", ""),
        ({**DEBUG, "output": 'ok: [localhost] => (item={"a": 1}) => {\n    "msg": "one"\n}'}, "one", ""),
        ({**DEBUG, "output": 'ok: [localhost] => {\n    "size": [1, 2]\n}'}, '{"size": [1, 2]}', ""),
        ({**DEBUG, "output": "ok: [localhost] =>\n    msg: Hello"}, "ok: [localhost] => msg: Hello", ""),
        ({**ENDED, "outcome": "succeeded"}, "succeeded in 1.2 s, ok 3, changed 1", "good"),
        ({**ENDED, "level": "error", "error": "no (task 'Say it', main.yml:3)"}, "failed in 1.2 s", "error"),
        ({**ENDED, "level": "error", "error": "killed"}, "failed in 1.2 s: killed", "error"),
        ({**ENDED, "outcome": "canceled", "error": "stopped"}, "canceled in 1.2 s: stopped", "info"),
        ({"msg": "Retrying the object with backoff", "seconds": 12.3, "failures": 2}, "retry in 12 s", "faint"),
        ({"msg": "Starting", "x": 1}, "Starting x=1", "info"),
    ],
)
def test_a_record_of_an_object_has_a_line_with_its_name(fields: dict[str, Any], text: str, style: str) -> None:
    assert console.line({**RUN, **fields}) == Line(f"Memcached default/mc: {text}" if text else "", style)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            {"msg": "Starting", "level": "info", "server": "v1.35", "url": "https://a", "ansible_core": "2.21"},
            "Kubernetes v1.35 at https://a, ansible-core 2.21",
        ),
        ({"msg": "Watching", "level": "info", "gvk": "g/v1, Kind=K", "workers": 2}, "watching g/v1, Kind=K"),
        (
            {"msg": "Task failed", "level": "error", "gvk": "g/v1, Kind=K", "name": "a", "task": "T", "path": "m.yml:3"}
            | {"error": "no\nsuch thing", "logger": "x", "host": "web"},
            "K a: task 'T' failed on web: no such thing (m.yml:3)",
        ),
        (
            {"msg": "Odd", "level": "error", "gvk": "g/v1, Kind=K", "error": "Odd: no", "path": "m.yml:3", "x": None},
            "error: K: Odd: no (m.yml:3)",
        ),
        ({"msg": "Serving", "level": "info", "port": 1, "paths": ["/healthz"]}, "Serving port=1 paths=['/healthz']"),
        ({"msg": "Not served", "level": "warning", "name": "a", "advice": "wait"}, "warning: Not served: wait name=a"),
        ({"msg": "x" * 3000, "level": "info"}, "x" * 1999 + "…"),
    ],
)
def test_any_other_record_has_a_line_with_all_of_its_fields(record: dict[str, Any], text: str) -> None:
    assert console.line(record).text == text


def test_the_text_of_an_item_neither_fails_nor_delays_the_line_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = {**RUN, **DEBUG, "output": f"ok: [localhost] => (item=[ => {'[' * 100_000})"}
    assert console.line(nested).text.startswith("Memcached default/mc: ok: [localhost] => (item=[ => [[[")
    tries: list[str] = []

    def loads(text: str) -> object:
        tries.append(text)
        raise ValueError

    monkeypatch.setattr(json, "loads", loads)
    console.line({**RUN, **DEBUG, "output": "ok: [localhost]" + " => " * 1000})
    assert len(tries) < 20


def test_a_line_begins_with_the_time_of_day_here() -> None:
    shown = console.line({"msg": "Stopped", "level": "info", "ts": "2026-11-29T22:41:03.786336Z"}).text
    assert re.fullmatch(r"\d\d:\d\d:03 Stopped", shown)


@pytest.mark.parametrize(
    ("style", "text"), [("error", "\x1b[31mno\x1b[0m"), ("good", "\x1b[32mno\x1b[0m"), ("info", "no"), ("", "no")]
)
def test_colours_are_those_of_meanings(style: str, text: str) -> None:
    assert Line("no", style).coloured() == text
