"""Output of a live view: redrawn on a terminal, otherwise a line per event."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Sequence
from typing import TextIO

from runner.dev.board import LiveView, samples

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_OTHER_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_PATIENCE = 1.0


class Screen:
    """One thread takes lines in while another one refreshes."""

    def __init__(self, board: LiveView, stream: TextIO, header: Sequence[str] = ()) -> None:
        self._board = board
        self._header = header  # on a terminal it covers what was said before, so that is to be in it
        self._stream = stream
        self._lock = threading.Lock()
        self._is_terminal = stream.isatty()
        self.last = ""
        """What the operator said last in words that are no log line."""
        if self._is_terminal:
            self._write(_OTHER_SCREEN)
            self._draw()

    def take(self, line: str) -> None:
        """Take in a line of the operator's log."""
        with self._lock:
            told = self._board.take(line)
            if line.startswith("error: "):
                self.last = line.strip()
            if told is not None and not self._is_terminal:
                self._write(told + "\n")
        if told is not None:
            self._draw()

    def refresh(self) -> None:
        """Look at the operator's metrics, and show what they say."""
        if not self._is_terminal or self._board.metrics_port is None:
            return
        try:
            address = f"http://127.0.0.1:{self._board.metrics_port}/metrics"
            with urllib.request.urlopen(address, timeout=_PATIENCE) as answer:
                text = answer.read().decode()
        except OSError:  # it is not there yet, or for a moment: the next look is soon
            return
        with self._lock:
            self._board.count(samples(text))
        self._draw()

    def close(self) -> None:
        """Give the terminal back."""
        if self._is_terminal:
            self._write(_BACK)

    def _draw(self) -> None:
        if not self._is_terminal:
            return
        size = shutil.get_terminal_size()
        with self._lock:
            # Left whole, for who copies it: the terminal breaks what is too long.
            header = [*self._header, ""] if self._header else []
            rows = sum(max(-(-len(line) // size.columns), 1) for line in header)
            lines = [*header, *self._board.picture(size.columns)[: max(size.lines - 1 - rows, 0)]]
        self._write(_HOME_AND_CLEAR + "\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
