"""Live view of `ansible-operator dev`: objects with their causes, and the latest events, as many as fit. Pure.

The operator's log has the events and active runs, its status page the objects. A cause is shown until the page no
longer has it. The terminal wraps commands and long paths, so that users can copy them.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from unicodedata import east_asian_width

from runner.base import console
from runner.base.console import Line, clock
from runner.base.page import plural
from runner.values.errors import shortened
from runner.values.objects import first_names

_EVENTS = frozenset({
    *("Starting", "Watching", "Run started", "Task output", "Run ended", "Retrying the object with backoff", "Stopped"),
    *("Serving the status page", "The project was edited; the operator starts again"),
    "A finalizer was edited; the next deletions run it",
})  # fmt: skip
"""Messages that developers read, beside warnings and errors."""
_LEVELS = frozenset({"warning", "error", "critical"})
_KEPT = 200
"""Latest events that are kept for high terminals."""
_STYLES = {"failing": "error", "stalled": "error", "ready": "good", "in progress": "active"}
_CAUSE_ROWS, _EVENT_ROWS = 6, 4
_LEAST_EVENTS = 4
_COMPACT, _ROOMY = 12, 20
"""Heights from which the view has the URL of the page, and the lines about its addresses and between its parts."""
_LONGEST_WORD = 200
_MOST_NAMED = 3
_PROJECT = "project"


@dataclass(frozen=True, slots=True)
class _Run:
    subject: str
    doing: str


@dataclass(slots=True)
class LiveView:
    """State of the operator, updated from its log and its status page."""

    header: Sequence[str] = ()
    """Lines about its addresses."""
    hint: Sequence[str] = ()
    """Lines with what to type while there is no object."""
    page: str = ""
    """URL of the status page, after the operator has logged it."""
    succeeded: int = 0
    failed: int = 0
    _stage: str = "The operator starts …"
    """What happens instead of runs; empty if runs are possible."""
    _problem: Line | None = None
    """Why the project is invalid."""
    _errors: dict[str, str] = field(default_factory=dict)
    """Errors with their time, by what they are about: an object, the project, or anything else."""
    _runs: dict[str, _Run] = field(default_factory=dict)
    _latest: deque[Line] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _kinds: Sequence[Mapping[str, Any]] = ()
    _objects: Sequence[Mapping[str, Any]] = ()
    _total: int | None = None
    """Number of objects; None until the page was read."""

    def take(self, line: str) -> Line | None:
        """Update the state from a line of the operator's log. Return a line for the developer, or None."""
        try:
            record = json.loads(line) if line.startswith("{") else None
        except ValueError:
            record = None
        if not isinstance(record, dict):
            return None
        message, shown = record.get("msg"), console.line(record)
        if message == "Serving the status page":
            known, self.page = self.page, record["url"]
            if known == self.page:
                return None
        self._update(message, record, shown)
        if not shown.text or (message not in _EVENTS and record.get("level") not in _LEVELS):
            return None
        self._latest.append(shown)
        return shown

    def _update(self, message: object, record: Mapping[str, Any], shown: Line) -> None:
        job = str(record.get("job"))
        match message:
            case "Starting":
                self._stage = ""
                self._runs.clear()
            case "The project was edited; the operator starts again":
                self._stage, self._problem = "The operator starts again …", None
                self._errors.pop(_PROJECT, None)
            case "The project is invalid; no run starts until you fix it":
                self._stage, self._problem = "No run starts: the project is invalid", shown
                self._note(_PROJECT, shown.text)
            case "Run started":
                self._runs[job] = _Run(console.subject(record), str(record.get("reason")))
            case "Task output" if job in self._runs and record.get("task"):
                self._runs[job] = _Run(self._runs[job].subject, f"task {record.get('number')}: {record['task']}")
            case "Run ended":
                self._end(job, record, shown)
            case _ if shown.style == "error":
                self._note(console.subject(record) if record.get("gvk") else "", shown.text)

    def _end(self, job: str, record: Mapping[str, Any], shown: Line) -> None:
        self._runs.pop(job, None)
        subject = console.subject(record)
        if record.get("outcome") == "succeeded":
            self.succeeded += 1
            self._errors.pop(subject, None)
        if shown.style == "error":
            self.failed += 1
            self._note(subject, f"{clock(record.get('ts'))} {subject}: {record.get('error')}".lstrip())

    def _note(self, about: str, error: str) -> None:
        self._errors.pop(about, None)
        self._errors[about] = error

    @property
    def last_error(self) -> str:
        """The last error that is not repaired, with its time; empty if there is none."""
        return next(reversed(self._errors.values()), "")

    def show(self, overview: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
        """Update the state from the views of the status page."""
        self._kinds, self._objects, self._total = overview["kinds"], objects["objects"], objects["total"]

    def stop(self, grace: float) -> Line:
        """Return the line about the stop, which waits up to `grace` seconds for runs."""
        runs = [f"{run.subject} ({run.doing})" for run in self._runs.values()]
        waits = f"waits up to {grace:g} s for {first_names(runs, _MOST_NAMED)}"
        self._stage = f"Stopping: {waits}. Ctrl-C again stops it now" if runs else "Stopping"
        return Line(self._stage, "warning")

    def picture(self, width: int, height: int) -> list[Line]:
        """Return the view for a terminal: lines that it shows in at most `height` rows.

        If there is little space, the newest event stays.
        """
        gap = [Line("")] if height >= _ROOMY else []
        page = [f"Page: {self.page}"] if self.page and height >= _COMPACT else []
        about = [Line(text, "faint") for text in (*(self.header if gap else ()), *page)]
        above = [*_wrapped(self._title(width), width, _EVENT_ROWS), *about, *gap]
        above += [row for line in self._problems() for row in _wrapped(line, width, _CAUSE_ROWS, "  ")]
        left = height - _rows(above, width) - len(gap) - 1
        objects = self._fitting(width, left - min(_LEAST_EVENTS, len(self._latest)))
        lines = [*above, *objects, *(gap if objects else []), Line("LATEST", "title")]
        lines += self._newest(width, max(height - _rows(lines, width), 1))
        while _rows(lines, width) > height and len(lines) > 1:
            del lines[0]
        return lines

    def _title(self, width: int) -> Line:
        if self._stage:
            return Line(self._stage, "warning" if self._stage.startswith("Stop") else "title")
        states = sum((Counter(kind["states"]) for kind in self._kinds), Counter())
        counted = f": {', '.join(f'{count} {state}' for state, count in states.items())}" if states else ""
        objects = "The operator runs." if self._total is None else f"{plural(self._total, 'object')}{counted}."
        runs = f"Runs: {self.succeeded} ok, {self.failed} failed."
        title = f"{objects} {runs} Ctrl-C stops."
        return Line(title if len(title) <= width else f"{objects} Ctrl-C stops.", "title")

    def _problems(self) -> Iterable[Line]:
        if self._problem:
            yield self._problem
        for kind in self._kinds:
            if problem := kind["problem"] or ("waiting for its CRD" if kind["waits"] else ""):
                yield Line(f"{kind['kind']}: {problem}", "warning")

    def _fitting(self, width: int, room: int) -> list[Line]:
        """Return the objects that fit into `room` rows, the worst first, and the number of the remaining ones."""
        doing = {run.subject: run.doing for run in self._runs.values()}
        rows = {_subject(obj): obj for obj in self._objects}
        rows |= {name: {"state": "running"} for name in doing if name not in rows}
        if self._total == 0 and not rows and not self._stage and not any(self._problems()):
            return [Line(text) for text in self.hint]
        pads = max(map(len, rows), default=0), max((len(str(obj["state"])) for obj in rows.values()), default=0)
        shown: list[Line] = []
        left = max(self._total or 0, len(rows))
        for name, obj in rows.items():
            block, left = _block(name, obj, doing.get(name, ""), pads, width), left - 1
            if not shown and room > 1:  # of the first one, as many lines as there is room for
                block = block[: room - bool(left)]
            if _rows([*shown, *block], width) + bool(left) > room:
                left += 1
                break
            shown += block
        return [*shown, *([Line(f"… {plural(left, 'more object')}", "faint")] if left else [])]

    def _newest(self, width: int, room: int) -> list[Line]:
        shown: list[Line] = []
        for line in reversed(self._latest):
            rows = _wrapped(line, width, min(_EVENT_ROWS, room), " " * 9)
            if _rows([*rows, *shown], width) > room:
                break
            shown = [*rows, *shown]
        return shown or [Line(shortened(line.text, width), line.style) for line in list(self._latest)[-1:]]


def _block(name: str, obj: Mapping[str, Any], doing: str, pads: tuple[int, int], width: int) -> list[Line]:
    """Return the lines of an object: its name, its state, what follows, and the cause of a failure."""
    state, following = str(obj["state"]), obj.get("next") or {}
    style, details = _STYLES.get(state, ""), []
    if doing:
        style, details = style if style == "error" else "active", [doing]
    elif following.get("stage") == "waiting":
        details = ["waits for a worker"]
    elif following.get("reason") == "retry":
        details = [f"retry in {following['seconds']:.0f} s"]
    if obj.get("failed_runs"):
        details.append(f"{plural(obj['failed_runs'], 'failed run')} since {clock(obj.get('failing_since'))}")
    elif not doing and obj.get("since"):
        details.append(f"since {clock(obj['since'])}")
    head = f"{name:<{pads[0]}}  {state:<{pads[1]}}  {', '.join(details)}".rstrip()
    has_message = style == "error" or (style != "good" and not doing)
    message = str(obj.get("message") or "") if has_message else ""
    causes = (_wrapped(Line(f"  {row}", style), width, _CAUSE_ROWS, "  ") for row in message.splitlines())
    return [*_wrapped(Line(head, style), width, 2, "  "), *chain.from_iterable(causes)]


def _subject(obj: Mapping[str, Any]) -> str:
    return f"{obj['kind']} {'/'.join(filter(None, (obj['namespace'], obj['name'])))}"


def _wrapped(line: Line, width: int, most: int, indent: str = "") -> list[Line]:
    """Break a line at spaces, into at most `most` lines."""
    words = (shortened(word, _LONGEST_WORD) for word in line.text.split(" "))
    form = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False, placeholder=" …")
    form.subsequent_indent, form.max_lines = indent, most
    return [Line(row, line.style) for row in form.wrap(" ".join(words))]


def _rows(lines: Iterable[Line], width: int) -> int:
    """Return how many rows of the terminal lines need, of which it wraps long ones."""
    return sum(max(-(-_cells(line.text) // width), 1) for line in lines)


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if east_asian_width(one) in "WF" else 1 for one in text)
