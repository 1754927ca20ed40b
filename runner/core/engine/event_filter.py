"""Events in the output of ansible-playbook, from marks with data. Replaces a class of ansible-runner.

The callback of ansible-runner sends the data of an event to a file or a socket. Then it writes two marks around the
event's text on the terminal. A role can print text that looks like such a mark, for example from the spec of a
resource. Here a mark begins an event only if it contains nothing but an ID, and if data with this ID was sent. The ID
is random. All other text that looks like a mark remains text.

Such text can end the text of its own event early: the end of an event has no ID. The rest is then output outside of any
task, without data.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from io import StringIO
from typing import Any

from ansible_runner.utils import OutputEventFilter

_START = "\x1b[K"
_MARK = re.compile(r"\x1b\[K((?:[A-Za-z0-9+/=]{1,78}\x1b\[\d{1,2}D){1,2})\x1b\[K")
"""Marks of ansible-runner's callback consist of at most two parts."""
_BETWEEN = re.compile(r"\x1b\[\d{1,2}D")
_UUID = re.compile(r"[0-9A-Za-z-]{30,48}(?:_\d{1,9})?")
"""Callbacks number the events of one task on several hosts."""


class EventFilter(OutputEventFilter):  # type: ignore[misc]  # ansible-runner has no types
    """Filter of a stream, without a file. `is_sent` returns whether the data of the event with this ID was sent."""

    def __init__(
        self,
        handle: None,
        event_callback: Callable[[dict[str, Any]], None],
        *_: Any,
        is_sent: Callable[[str], bool],
        **__: Any,
    ) -> None:
        super().__init__(handle, event_callback, suppress_ansible_output=True)
        self._is_sent = is_sent

    def write(self, data: str) -> None:
        """Process more output."""
        self._buffer.write(data)
        recent = self._last_chunk + data
        self._last_chunk: str = data
        if _START in recent:
            self._end_at_marks()
        if "\n" in data and self._current_event_data is None:
            *lines, last = self._buffer.getvalue().splitlines(keepends=True) or [""]
            if last.endswith("\n"):
                lines, last = [*lines, last], ""
            for line in lines:
                self._emit_event(line)
            self._restart(last)

    def _end_at_marks(self) -> None:
        """Emit the events that end at a mark in the buffer."""
        rest = self._buffer.getvalue()
        position = 0
        while match := _MARK.search(rest, position):
            begun = self._begun(match[1])
            if begun is None:
                position = match.start() + 1
                continue
            self._emit_event(rest[: match.start()], begun)
            rest, position = rest[match.end() :], 0
            self._last_chunk = rest
            self._restart(rest)

    def _begun(self, content: str) -> dict[str, Any] | None:
        """Return the event that a mark begins, an empty one for the end of an event, and None for other text."""
        try:
            value = json.loads(base64.b64decode(_BETWEEN.sub("", content)))
        except ValueError:
            return None
        if value == {}:
            return {}
        uuid = value.get("uuid") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(uuid, str) and _UUID.fullmatch(uuid) and self._is_sent(uuid):
            return {"uuid": uuid}
        return None

    def _restart(self, rest: str) -> None:
        self._buffer = StringIO()
        self._buffer.write(rest)
