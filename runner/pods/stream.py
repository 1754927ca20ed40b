"""Lines of `ansible-runner worker`, as values. Pure.

A line is JSON: a status, an event, or the end. After `{"zipfile": SIZE}` follow the artifacts in base64, on the same
line as what comes next. They are skipped: a run's pod is not trusted to write files of its choice in the operator's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from runner.engine.job import Event

_FINAL = {"successful": 0, "failed": 2}
"""Exit codes of ansible-playbook for the statuses of ansible-runner."""


class MalformedLineError(Exception):
    """The worker sent something that ansible-runner does not send."""


@dataclass(slots=True)
class WorkerOutput:
    """Reader of the lines of one run."""

    status: str = ""
    explanation: str = ""
    """Explanation of ansible-runner for a run that it could not start or finish."""
    _skip: int = 0

    def line(self, line: bytes) -> Event | None:
        """Read a line; return the event in it, or None. Raises MalformedLineError."""
        if self._skip:
            line, self._skip = line[self._skip :], 0
        if not line.strip():
            return None
        try:
            value: Any = orjson.loads(line)
        except ValueError as error:
            raise MalformedLineError(f"a line is not JSON ({error}): {line[:200]!r}") from error
        if not isinstance(value, dict):
            raise MalformedLineError(f"a line is not an object: {line[:200]!r}")
        if "status" in value:
            self.status = str(value["status"])
            self.explanation = str(value.get("job_explanation") or self.explanation)
            return None
        if "zipfile" in value:
            size = value["zipfile"]
            if not isinstance(size, int) or size < 0:
                raise MalformedLineError(f"artifacts of {size!r} bytes")
            self._skip = (size + 2) // 3 * 4
            return None
        if "eof" in value or value.get("event") == "keepalive":
            return None
        if not isinstance(value.get("event"), str) or not isinstance(value.get("uuid"), str):
            raise MalformedLineError(f"an event without name or uuid: {line[:200]!r}")
        return value

    @property
    def code(self) -> int | None:
        """Exit code of ansible-playbook; None if ansible-runner reported no end."""
        return _FINAL.get(self.status)
