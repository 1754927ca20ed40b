"""Task output in the log as blocks of text, in the format of other Ansible operators.

A reader can attribute each line to its block. Control characters are visible. A line of the text begins with `| ` if it
looks like a line of the operator or the frame of a block.

`block` and `recap_block` are pure. `BlockWriter` writes each block whole, so blocks of two runs never mix.
"""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO, TypeAlias

from runner.base.log import visible
from runner.core.engine.events import TASK_STARTS
from runner.core.engine.job import Event
from runner.values.objects import GVK, ObjectKey, mapping

Level = Literal["tasks", "everything", "nothing"]
Through: TypeAlias = Callable[[str], str]

_OPENING = "--------------------------- Ansible Task StdOut -------------------------------"
_CLOSING = "-" * len(_OPENING)
_AMBIGUOUS = re.compile(r"^(?=[^\S\n]*(?:\{[^\S\n]*\"|-{5}|\d{4}-\d\d-\d\dT|\[[a-z]+ *\] ))", re.MULTILINE)
"""Beginning of a line that looks like a log line of the operator (JSON or console), or like the frame of a block."""
_DEBUG = frozenset({"debug", "ansible.builtin.debug", "ansible.legacy.debug"})
_SET_FACT = frozenset({"set_fact", "ansible.builtin.set_fact", "ansible.legacy.set_fact"})
FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
_ITEMS = frozenset({"runner_item_on_ok", "runner_item_on_failed"})


def attributable(text: str) -> str:
    """Return text of a run whose lines cannot be mistaken for lines of the operator, and that a terminal can show."""
    return _AMBIGUOUS.sub("| ", visible(text))


def block(event: Event, level: Level, *, raised: bool = False) -> str | None:
    """Return the block of an event in the log, None for most events.

    `raised`: a user raised the verbosity, so that all output of tasks is shown.
    """
    text = output(event, level, raised=raised)
    if text is None or level == "everything":
        return None if text is None else _framed(text)
    data, name = _data(event), event.get("event", "")
    title = [] if name in TASK_STARTS else [f"TASK [{data.get('task', '')}] " + "*" * 32]
    where = [f"task path: {data['task_path']}"] if name in FAILURES and data.get("task_path") else []
    return _framed(attributable("\n".join([*title, *where, text])))


def output(event: Event, level: Level, *, raised: bool = False) -> str | None:
    """Return the text in the block of an event without its title, None for most events."""
    if level == "nothing":
        return None
    data = _data(event)
    text = event.get("stdout") or ""
    if level == "everything":
        shown = {"event": event.get("event"), **data}
        dumped = visible(json.dumps(shown, ensure_ascii=False, default=str))
        return "\n".join(filter(None, (attributable(text), dumped)))
    shown_always = raised and "task" in data
    if not text.strip() or not (shown_always or _is_shown(event.get("event", ""), data.get("task_action", ""))):
        return None
    return visible(text.strip("\r\n"))


def is_start(event: Event) -> bool:
    """Return whether a task starts with this event."""
    return event.get("event", "") in TASK_STARTS


def _data(event: Event) -> Mapping[str, Any]:
    return mapping(event.get("event_data"))


def _is_shown(name: str, action: str) -> bool:
    if name in TASK_STARTS:
        return action not in _SET_FACT and action not in _DEBUG
    return name in FAILURES or name in _ITEMS or (name == "runner_on_ok" and action in _DEBUG)


def _framed(text: str) -> str:
    return f"\n{_OPENING}\n{text}\n{_CLOSING}\n"


def recap_block(event: Event, gvk: GVK, key: ObjectKey) -> str | None:
    """Return the block of the play recap, None for every other event."""
    text = event.get("stdout") or ""
    if event.get("event") != "playbook_on_stats" or not text.strip():
        return None
    title = f"Ansible Task Status Event StdOut ({gvk}, {key.name}/{key.namespace})"
    return f"\n----- {title:>70} -----\n\n{attributable(text.strip())}\n\n----------\n"


def _dropped_line(count: int) -> str:
    return f"\n{count} blocks of task output were dropped: nobody read this stream, or it was full\n"


class BlockWriter:
    """Writer of blocks to a stream, with its own thread: a slow reader must not delay the operator.

    The queue is bounded. A block that exceeds the bound is dropped, and a line contains the number of dropped blocks.
    """

    def __init__(
        self, stream: TextIO, room: int = 64 << 20, dropped_line: Callable[[int], str] = _dropped_line
    ) -> None:
        """`dropped_line` returns the line that contains the number of dropped blocks."""
        self._stream = stream
        self._room = room
        self._dropped_line = dropped_line
        self._waiting: queue.SimpleQueue[tuple[str, Through | None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._size = 0
        self._dropped = 0
        self._thread = threading.Thread(target=self._work, name="blocks", daemon=True)
        self._thread.start()

    def write(self, text: str, through: Through | None = None) -> None:
        """Queue a block; never blocks. The writer's thread calls `through`, which may be slow, to mask the text."""
        with self._lock:
            if self._size and self._size + len(text) > self._room:
                self._dropped += 1
                return
            self._size += len(text)
        self._waiting.put((text, through))

    def close(self) -> None:
        """Return after all blocks are written."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            text, through = waiting
            is_written = self._write(through(text) if through else text)
            with self._lock:
                self._size -= len(text)
                self._dropped += not is_written
                dropped, self._dropped = (self._dropped, 0) if not self._size else (0, self._dropped)
            if dropped and not self._write(self._dropped_line(dropped)):
                self._dropped += dropped

    def _write(self, text: str) -> bool:
        """Return False if the stream refuses a text, as on a full disk: the output of other runs must continue."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            return False
        return True
