"""Progress display: a line that is redrawn on a terminal, otherwise a line every 30 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_REDRAW = 0.2
_REMIND = 30.0
_CLEAR = "\r\x1b[K"


class Progress:
    """Display of one step at a time on a stream (standard error).

    `tick` can be called often; it limits the rate of redrawing.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._text = ""
        self._began = 0.0
        self._drawn = 0.0

    def note(self, text: str) -> None:
        """Print a permanent line."""
        self._stream.write((_CLEAR if self._terminal else "") + text + "\n")
        self._stream.flush()

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show the step, and its duration at the end."""
        self._text, self._began = text, self._clock()
        self._drawn = self._began
        if self._terminal:
            self._draw("")
        else:
            self.note(f"{text} ...")
        try:
            yield
        except BaseException:
            if self._terminal:
                self.note(f"{text}: stopped after {self._elapsed()}")
            raise
        self.note(f"{text}: done in {self._elapsed()}")

    def tick(self, detail: str = "") -> None:
        """Show that the step is still running."""
        now = self._clock()
        if now - self._drawn < (_REDRAW if self._terminal else _REMIND):
            return
        self._drawn = now
        if self._terminal:
            self._draw(detail)
        else:
            self.note(f"{self._text} ... {self._elapsed()} {detail}".rstrip())

    def _draw(self, detail: str) -> None:
        self._stream.write(f"{_CLEAR}{self._text} ... {self._elapsed()} {detail}".rstrip())
        self._stream.flush()

    def _elapsed(self) -> str:
        return f"{self._clock() - self._began:.0f} s"
