"""Output of `ansible-operator dev`: the live view on a terminal, otherwise a line for each event."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request
from contextlib import suppress
from typing import Any, TextIO

from runner.base.console import Line
from runner.base.log import has_colour, visible
from runner.sdk.dev.board import LiveView

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_PATIENCE = 1.0


class Screen:
    """A `LiveView` on a stream. One thread adds lines while another one refreshes."""

    def __init__(self, view: LiveView, stream: TextIO) -> None:
        self._view = view
        self._stream = stream
        self._lock = threading.Lock()
        self._is_terminal = stream.isatty()
        self._has_colour = has_colour(stream)
        self._drawn: object = None
        self.last = ""
        """Last output of the operator that is not a log line."""
        if self._is_terminal:
            self._write(_OTHER_SCREEN)
            self._draw()

    def take(self, line: str) -> None:
        """Add a line of the operator's log."""
        with self._lock:
            if line.startswith("error: "):
                self.last = line.strip()
            self._add(self._view.take(line))

    def stop(self, grace: float) -> None:
        """Show that the operator stops."""
        with self._lock:
            self._add(self._view.stop(grace))

    def refresh(self) -> None:
        """Read the operator's status page and show it, on a terminal."""
        if not self._is_terminal:
            return
        read = None
        if self._view.page:
            try:
                read = _read(f"{self._view.page}api/overview"), _read(f"{self._view.page}api/objects")
            except (OSError, ValueError):  # the operator starts again: the next refresh is soon
                read = None
        with self._lock:
            if read is not None:
                self._view.show(*read)
            self._draw()

    def close(self) -> None:
        """Restore the terminal."""
        if self._is_terminal:
            self._write(_BACK)

    def _add(self, line: Line | None) -> None:
        if self._is_terminal:
            self._draw()
        elif line is not None:
            self._write(visible(line.text) + "\n")

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        lines = [Line(visible(line.text), line.style) for line in self._view.picture(size.columns, size.lines - 1)]
        text = "\n".join(line.coloured() if self._has_colour else line.text for line in lines)
        if (text, size) != self._drawn:
            self._drawn = text, size
            self._write(f"{_HOME_AND_CLEAR}{text}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal was closed, or the reader of a pipe has ended
            self._stream.write(text)
            self._stream.flush()


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:  # noqa: S310 - the operator has logged it
        return json.load(answer)
