"""Lines of `ansible-runner worker`, as values. Pure.

A line is JSON: a status, an event, or the end. The agent removes the artifacts.

ansible-runner finds events by marks in the output of ansible-playbook, so a text of a resource that a role prints can
contain events. `callbacks/ansible_operator_mark.py` therefore adds a number to each event, which is derived from the
token of the run. Here an event without this number is only text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from runner.agent.bounds import MOST_VALUES, exceeds
from runner.core.engine.job import Event

MARK = "project_update_id"
"""Member of an event with the number of its run."""
_FINAL = {"successful": 0, "failed": 2}
"""Exit codes of ansible-playbook for the statuses of ansible-runner."""
_TEXTS = ("host", "play", "play_uuid", "resolved_action", "role", "task", "task_action", "task_path", "task_uuid")
"""Members of `event_data` that are text."""
_COUNTS = ("changed", "dark", "failures", "ignored", "ok", "processed", "rescued", "skipped")
"""Members of the recap with numbers by host."""
_LONGEST = 4000
"""Characters of an explanation."""


class MalformedLineError(Exception):
    """The worker sent something that ansible-runner does not send."""


@dataclass(slots=True)
class WorkerOutput:
    """Reader of the lines of one run."""

    mark: int
    """Number of the run's events, see `mark_of`."""
    status: str = ""
    explanation: str = ""
    """Explanation of ansible-runner for a run that it could not start or finish."""

    def line(self, line: bytes) -> Event | None:
        """Read a line; return the event in it, or None. Raises MalformedLineError."""
        if not line.strip():
            return None
        if exceeds(line, 2 * MOST_VALUES):
            raise MalformedLineError(f"an event has more than {2 * MOST_VALUES} values")
        try:
            value = _parse(line)
        except (ValueError, RecursionError) as error:
            raise MalformedLineError(f"a line is not JSON ({error}): {line[:200]!r}") from error
        if not isinstance(value, dict):
            raise MalformedLineError(f"a line is not an object: {line[:200]!r}")
        if "event" in value:
            return self._event(value, line)
        if "status" in value:
            self.status = str(value["status"])[:_LONGEST]
            self.explanation = str(value.get("job_explanation") or self.explanation)[:_LONGEST]
            return None
        if "eof" in value:
            return None
        raise MalformedLineError(f"a line is neither status nor event: {line[:200]!r}")

    def _event(self, value: Event, line: bytes) -> Event | None:
        if value.pop(MARK, None) != self.mark:
            if value["event"] == "keepalive" and "stdout" not in value:
                return None
            value = {
                "event": "verbose",
                "uuid": str(value.get("uuid", "")),
                "counter": value.get("counter"),
                "stdout": value.get("stdout"),
            }
        if not _is_event(value):
            raise MalformedLineError(f"an event with a missing value, or one of another type: {line[:200]!r}")
        return value

    @property
    def code(self) -> int | None:
        """Exit code of ansible-playbook; None if ansible-runner reported no end."""
        return _FINAL.get(self.status)


def mark_of(token: str) -> int:
    """Return the number of the events of the run with this token; same as in `ansible_operator_mark.py`."""
    return int.from_bytes(hashlib.sha256(f"events of {token}".encode()).digest()[:6], "big")


def _parse(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # NaN, infinity and half characters, which Ansible can write. A status cannot contain the latter.
        return json.loads(json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace"))


def _is_event(value: Mapping[str, Any]) -> bool:
    """Return whether the members that the operator reads have the types of ansible-runner."""
    name, data = value.get("event"), value.get("event_data")
    data = {} if data is None else data
    return (
        isinstance(name, str)
        and isinstance(value.get("uuid"), str)
        and isinstance(data, dict)
        and _is_text(value.get("stdout"))
        and _is_text(value.get("created"))
        and all(_is_text(data.get(member)) for member in _TEXTS)
        and (name != "playbook_on_stats" or all(_is_counts(data.get(member)) for member in _COUNTS))
    )


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_counts(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(type(count) is int for count in value.values()))
