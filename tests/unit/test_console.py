"""The lines of the log that people read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from runner.base import console
from runner.base.console import Line

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


def test_a_line_begins_with_the_time_of_day_here() -> None:
    shown = console.line({"msg": "Stopped", "level": "info", "ts": "2026-11-29T22:41:03.786336Z"}).text
    assert re.fullmatch(r"\d\d:\d\d:03 Stopped", shown)


@pytest.mark.parametrize(
    ("style", "text"), [("error", "\x1b[31mno\x1b[0m"), ("good", "\x1b[32mno\x1b[0m"), ("info", "no"), ("", "no")]
)
def test_colours_are_those_of_meanings(style: str, text: str) -> None:
    assert Line("no", style).coloured() == text
