"""Messages between a supervisor and its parent process, and detection of the parent's exit."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHUNK = 65536
_FIRST_LINE_POLL = 1.0


class ParentGoneError(Exception):
    """The cluster must stop; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """The command to start a cluster; as JSON, it is the first line of standard input."""

    name: str
    folder: str
    binaries: Mapping[str, str]
    apiserver_args: Sequence[str]
    keep_logs: bool
    nodes: str = "fake"


@dataclass(slots=True)
class ParentProcess:
    """The parent process, observed through a pipe and by its process id.

    The pipe is closed immediately when the parent exits, unless another child of the parent holds it open. In that
    case the parent's process id changes.
    """

    descriptor: int
    parent: int
    detached: bool = False
    _stop: str = ""
    _pending: bytes = b""

    def stop(self, reason: str) -> None:
        """Request the stop of the cluster; for signal handlers."""
        self._stop = reason

    def check(self) -> None:
        """Raise `ParentGoneError` if the cluster must stop."""
        if self._stop and not (self._stop == "end of input" and self.detached):
            raise ParentGoneError(self._stop)
        if not self.detached and os.getppid() != self.parent:
            raise ParentGoneError("the parent process exited")

    def lines(self, timeout: float) -> list[str]:
        """Return received lines; wait at most `timeout` seconds."""
        if self._stop:
            time.sleep(timeout)
            return []
        with selectors.DefaultSelector() as selector:
            selector.register(self.descriptor, selectors.EVENT_READ)
            if not selector.select(timeout):
                return []
        data = os.read(self.descriptor, _CHUNK)
        if not data:
            self._stop = "end of input"
        *complete, self._pending = (self._pending + data).split(b"\n")
        return [line.decode() for line in complete]

    def first_line(self) -> str:
        """Wait for the first line."""
        while True:
            lines = self.lines(_FIRST_LINE_POLL)
            if lines:
                return lines[0]
            self.check()
