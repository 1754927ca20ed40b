"""Output of a live view: redrawn on a terminal, otherwise a line per event."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Sequence
from typing import TextIO

from runner.log import visible
from runner.sdk.dev.board import LiveView, samples

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_PATIENCE = 1.0


class Screen:
    """Live view of a `LiveView` on a stream. One thread adds lines while another one refreshes."""

    def __init__(self, board: LiveView, stream: TextIO, header: Sequence[str] = ()) -> None:
        self._board = board
        self._header = header  # on a terminal, the view hides earlier output, so the header repeats it
        self._stream = stream
        self._lock = threading.Lock()
        self._is_terminal = stream.isatty()
        self.last = ""
        """Last output of the operator that is not a log line."""
        if self._is_terminal:
            self._write(_OTHER_SCREEN)
            self._draw()

    def take(self, line: str) -> None:
        """Add a line of the operator's log."""
        with self._lock:
            shown = self._board.take(line)
            if line.startswith("error: "):
                self.last = line.strip()
            if shown is not None and not self._is_terminal:
                self._write(visible(shown) + "\n")
        if shown is not None:
            self._draw()

    def refresh(self) -> None:
        """Read the operator's metrics and show them."""
        if not self._is_terminal or self._board.metrics_port is None:
            return
        try:
            address = f"http://127.0.0.1:{self._board.metrics_port}/metrics"
            with urllib.request.urlopen(address, timeout=_PATIENCE) as answer:
                text = answer.read().decode()
        except OSError:  # not available yet, or for a moment: the next refresh is soon
            return
        with self._lock:
            self._board.count(samples(text))
        self._draw()

    def close(self) -> None:
        """Restore the terminal."""
        if self._is_terminal:
            self._write(_BACK)

    def _draw(self) -> None:
        if not self._is_terminal:
            return
        size = shutil.get_terminal_size()
        with self._lock:
            # Not cut, so that users can copy it: the terminal wraps long lines.
            page = [f"Page: {self._board.page}"] if self._board.page else []
            header = [*self._header, *page, ""] if self._header or page else []
            rows = sum(max(-(-len(line) // size.columns), 1) for line in header)
            room = size.lines - 1 - rows
            picture = self._board.picture(size.columns, room) if room > 0 else ()
            lines = [*header, *(visible(line) for line in picture)]
        self._write(_HOME_AND_CLEAR + "\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
