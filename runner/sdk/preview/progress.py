"""Progress of the command `plan` on standard error: a line on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from dataclasses import dataclass, field

from runner.base import log
from runner.base.page import plural
from runner.values.objects import ObjectRef

_SILENT, _REDRAW, _REMIND = 2.0, 0.5, 10.0
"""Seconds without a line at the begin, and between lines."""
_CLEAR = "\r\x1b[K"


@dataclass(slots=True)
class Progress:
    """State of a plan in progress."""

    planned: int = 0
    total: int = 0
    task: str = ""
    """The task that began last, with its resource."""
    began: float = field(default_factory=time.monotonic)

    def count(self, planned: int, total: int) -> None:
        """Note the number of planned resources, and of all."""
        self.planned, self.total = planned, total

    def start(self, resource: ObjectRef, task: str) -> None:
        """Note that a run starts a task."""
        self.task = f"{resource}: {task}"

    def line(self, seconds: float) -> str:
        """Return the state after a time, for a terminal."""
        what = f"planned {self.planned} of {plural(self.total, 'resource')}" if self.total > 1 else "planning"
        step = self.task or ("starting Ansible" if self.total else "reading the cluster")
        text = f"{what}; {step}"
        return log.visible(f"{seconds:.0f} s: {text}").replace("\n", " ")

    async def show(self) -> None:
        """Show the state until this is cancelled; then erase the line."""
        is_terminal = sys.stderr.isatty()
        try:
            await asyncio.sleep(_SILENT if is_terminal else _REMIND)
            while True:
                text = self.line(time.monotonic() - self.began)
                if is_terminal:
                    text = _CLEAR + text[: shutil.get_terminal_size().columns - 1]
                sys.stderr.write(text if is_terminal else f"{text}\n")
                sys.stderr.flush()
                await asyncio.sleep(_REDRAW if is_terminal else _REMIND)
        finally:
            if is_terminal:
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
