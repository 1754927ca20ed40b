"""Lines of the log on a terminal: the time, the object, and what happened. Pure.

A log on a terminal and `ansible-operator dev` show them. Programs read the JSON form, which has all fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runner.values.objects import first_names

_CODES = {"error": 31, "critical": 31, "warning": 33, "good": 32, "active": 36, "faint": 2, "debug": 2, "title": 1}
_DETAILS = ("problem", "error", "detail", "why", "advice", "command", "url")
"""Fields that are sentences, in the order in which they follow the message."""
_ELSEWHERE = frozenset({"msg", "level", "ts", "logger", "job", "path", "exception", "stack", *_DETAILS})
_NAMES = frozenset({"gvk", "namespace", "name"})
_DEBUG = frozenset({"debug", "ansible.builtin.debug", "ansible.legacy.debug"})
_MESSAGES = frozenset({"runner_on_ok", "runner_item_on_ok"})
_STARTS = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
_MOST_DETAILS = 3
_MOST_PARTS = 10
_LONGEST = 2000
"""Characters of a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a terminal, and the name of its colour."""

    text: str
    style: str = ""
    """What the line means: error, warning, good, active, faint or title; other names have no colour."""

    def coloured(self) -> str:
        """Return the text with the escape sequences of its colour."""
        return f"\x1b[{_CODES[self.style]}m{self.text}\x1b[0m" if self.style in _CODES else self.text


def line(record: Mapping[str, Any]) -> Line:
    """Return the line of a record of the log, by the names of its JSON form; no text if it is only for programs."""
    render = _RENDERERS.get(str(record.get("msg")), _any)
    try:
        shown = render(record)
    except KeyError:  # another message with the same text
        shown = _any(record)
    text = " ".join(shown.text.split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return Line(f"{clock(record.get('ts'))} {text}".lstrip(), shown.style) if text else Line("")


def subject(record: Mapping[str, Any]) -> str:
    """Return `Kind namespace/name` of a record with the field `gvk`."""
    kind = str(record["gvk"]).rpartition("Kind=")[2]
    name = "/".join(filter(None, (record.get("namespace"), record.get("name")))) if record.get("name") else ""
    return f"{kind} {name}".rstrip()


def clock(moment: object) -> str:
    """Return the local time of day of seconds since the epoch, or of an RFC 3339 time; empty for anything else."""
    try:
        time = datetime.fromtimestamp(moment) if isinstance(moment, float) else datetime.fromisoformat(str(moment))  # noqa: DTZ006 - local
    except ValueError:
        return ""
    return time.astimezone().strftime("%H:%M:%S")


def _starting(record: Mapping[str, Any]) -> Line:
    return Line(f"Kubernetes {record['server']} at {record['url']}, ansible-core {record['ansible_core']}")


def _watching(record: Mapping[str, Any]) -> Line:
    return Line(f"watching {record['gvk']}")


def _started(record: Mapping[str, Any]) -> Line:
    details = first_names([str(detail) for detail in record.get("details") or ()], _MOST_DETAILS)
    why = ": ".join(filter(None, (record["reason"], details)))
    return Line(f"{subject(record)}: {'finalizer' if why == 'deleted' else 'run'} started, {why}", "active")


def _task(record: Mapping[str, Any]) -> Line:
    event = record["ansible_event"]
    if record.get("action") in _DEBUG and event in _MESSAGES:
        return Line(f"{subject(record)}: {_debug_message(record['output'])}")
    if event not in _STARTS:
        return Line("")  # of a failure, another line has the cause
    return Line(f"{subject(record)}: task {record['number']}: {record['task']}")


def _failed(record: Mapping[str, Any]) -> Line:
    host, path = (record.get(name) for name in ("host", "path"))
    place = (f" on {host}" if host else "", f" ({path})" if path else "")
    return Line(f"{subject(record)}: task {record['task']!r} failed{place[0]}: {record['error']}{place[1]}", "error")


def _ended(record: Mapping[str, Any]) -> Line:
    shown = f"{subject(record)}: {record['outcome']} in {record['seconds']:.1f} s"
    if record["outcome"] == "succeeded":
        return Line(f"{shown}, ok {record['ok']}, changed {record['changed']}", "good")
    error = record.get("error") or ""
    is_known = record["level"] == "error" and " (task " in error  # the lines of its failed tasks come before
    return Line(f"{shown}: {error}" if error and not is_known else shown, str(record["level"]))


def _retrying(record: Mapping[str, Any]) -> Line:
    return Line(f"{subject(record)}: retry in {record['seconds']:.0f} s", "faint")


def _any(record: Mapping[str, Any]) -> Line:
    message, level = str(record.get("msg")), str(record.get("level"))
    details = "; ".join(str(record[name]) for name in _DETAILS if record.get(name)).removeprefix(f"{message}: ")
    hidden = _ELSEWHERE | (_NAMES if record.get("gvk") else frozenset())
    fields = [f"{name}={value}" for name, value in record.items() if name not in hidden and value is not None]
    parts = (
        subject(record) + ":" if record.get("gvk") else "",
        f"{message}: {details}" if details else message,
        f"({record['path']})" if record.get("path") else "",
        *fields,
    )
    text = " ".join(filter(None, parts))
    return Line(text if level == "info" else f"{level}: {text}", level)


_RENDERERS: Mapping[str, Callable[[Mapping[str, Any]], Line]] = {
    "Starting": _starting,
    "Watching": _watching,
    "Run started": _started,
    "Task output": _task,
    "Task failed": _failed,
    "Run ended": _ended,
    "Retrying the object with backoff": _retrying,
}


def _debug_message(output: str) -> str:
    """Return the message in the output of a `debug` task; the whole output if it has another format."""
    rest = output
    for _ in range(_MOST_PARTS):
        _, _, rest = rest.partition(" => ")
        try:
            result = json.loads(rest)
        except (ValueError, RecursionError):  # this part is the label of an item
            continue
        message = result.get("msg", result) if isinstance(result, dict) else result
        return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return output
