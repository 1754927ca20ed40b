"""State of a running operator for developers, from its log lines and metrics. Pure.

Output: a line for each important event, or the lines of a full screen.
"""

from __future__ import annotations

import json
import shutil
import textwrap
import threading
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

from prometheus_client.parser import text_string_to_metric_families

from runner.base.log import visible
from runner.core.reconcile.metrics import controller_name
from runner.values.objects import GVK

_MOST_SHOWN = 8
"""Number of latest events on the screen."""
_SHORTEST_STORY = ("LATEST", "one event")
_ERROR_ROWS = 4
_KIND_WIDTH, _NUMBERS_WIDTH = 44, 28
_LEVELS = frozenset({"warning", "error", "critical"})
_DEBUG = frozenset({"debug", "ansible.builtin.debug", "ansible.legacy.debug"})
_MESSAGES = frozenset({"runner_on_ok", "runner_item_on_ok"})
_DETAILS = ("problem", "error", "detail", "why", "advice", "command")


class KindSample(NamedTuple):
    """Numbers of one kind in the operator's metrics."""

    kind: str
    queued: int
    objects: int


@dataclass(slots=True)
class _Run:
    subject: str
    reason: str
    task: str = ""
    tasks: int = 0


@dataclass(slots=True)
class _Kind:
    queued: int = 0
    objects: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(slots=True)
class LiveView:
    """State of the operator, updated from its log lines and metrics."""

    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _former: dict[str, _Kind] = field(default_factory=dict)
    """Kinds of the operator before a restart."""
    _runs: dict[str, _Run] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)
    _error: str = ""
    metrics_port: int | None = None
    """Port of the operator's metrics, after the operator has logged it."""
    page: str = ""
    """URL of the status page, after the operator has logged it."""

    def take(self, line: str) -> str | None:
        """Update the state from a line of the operator's log. Return a line for the developer, or None."""
        try:
            record = json.loads(line) if line.startswith("{") else None
        except ValueError:
            record = None
        if not isinstance(record, dict):
            return None
        shown = self._shown(record)
        if shown is not None:
            self._lines = [*self._lines, shown][-_MOST_SHOWN:]
        return shown

    def count(self, samples: Iterable[KindSample]) -> None:
        """Update the state from the metrics."""
        for sample in samples:
            kind = self._kinds.setdefault(sample.kind, _Kind())
            kind.queued, kind.objects = sample.queued, sample.objects

    def _shown(self, record: Mapping[str, Any]) -> str | None:
        renderers = {
            "Serving": self._serving,
            "Serving the status page": self._page,
            "Starting": self._starting,
            "Watching": self._watching,
            "Run started": self._start,
            "Task output": self._task,
            "Run ended": self._end,
            "The project was edited; the operator starts again": self._edited,
            "Stopped": self._notable,
        }
        render = renderers.get(record.get("msg", ""), self._notable if record.get("level") in _LEVELS else None)
        return render(record) if render is not None else None

    def _serving(self, record: Mapping[str, Any]) -> None:
        if "/metrics" in record["paths"]:
            self.metrics_port = record["port"]

    def _page(self, record: Mapping[str, Any]) -> str | None:
        known, self.page = self.page, record["url"]
        return f"status page {self.page}" if self.page != known else None

    def _starting(self, record: Mapping[str, Any]) -> str:
        self._former, self._kinds = self._kinds | self._former, {}
        self._runs.clear()
        return f"Kubernetes {record['server']}, ansible-core {record['ansible_core']}"

    def _watching(self, record: Mapping[str, Any]) -> str:
        self._kinds.setdefault(record["gvk"], self._former.pop(record["gvk"], _Kind()))
        return f"watching {record['gvk']}"

    def _start(self, record: Mapping[str, Any]) -> str:
        run = self._runs[record["job"]] = _Run(_subject_of(record), record["reason"])
        return f"{run.subject}: run started, {run.reason}"

    def _task(self, record: Mapping[str, Any]) -> str | None:
        run, task = self._runs.get(record["job"]), record.get("task")
        if run is not None and record.get("action") in _DEBUG and record.get("ansible_event") in _MESSAGES:
            run.tasks += task != run.task
            run.task = task or run.task
            return f"{run.subject}: {_debug_message(record['output'])}"
        if run is None or not task or task == run.task:
            return None
        run.task, run.tasks = task, run.tasks + 1
        return f"{run.subject}: task {run.tasks}: {task}"

    def _end(self, record: Mapping[str, Any]) -> str:
        self._runs.pop(record["job"], None)
        kind = self._kinds.setdefault(record["gvk"], _Kind())
        good = record["outcome"] == "succeeded"
        kind.succeeded, kind.failed = kind.succeeded + good, kind.failed + (not good)
        shown = f"{_subject_of(record)}: {record['outcome']} in {record['seconds']:.1f} s"
        if good:
            return f"{shown}, ok {record['ok']}, changed {record['changed']}"
        return shown + (f": {record['error']}" if record.get("error") else "")

    def _edited(self, record: Mapping[str, Any]) -> str:
        self._error = ""
        return self._notable(record)

    def _notable(self, record: Mapping[str, Any]) -> str:
        details = "; ".join(str(record[name]) for name in _DETAILS if record.get(name))
        details = details.removeprefix(f"{record['msg']}: ")  # messages of ansible-core begin so
        subject = f"{_subject_of(record)}: " if record.get("gvk") else ""
        place = f" ({record['path']})" if record.get("path") else ""
        shown = f"{subject}{record['msg']}" + (f": {details}" if details else "") + place
        if record["level"] != "info":
            shown = f"{record['level']}: {shown}"
        if record["level"] in {"error", "critical"}:
            self._error = shown
        return shown

    def picture(self, width: int, height: int = 1000) -> list[str]:
        """Return the current state, in lines of at most `width` characters, and at most `height` lines.

        If there is little space, the newest event stays.
        """
        name = max(min(_KIND_WIDTH, width - _NUMBERS_WIDTH), len("KIND"))
        kinds = [f"{'KIND':<{name}} {'OBJECTS':>7} {'QUEUE':>6} {'OK':>5} {'FAILED':>6}"]
        for gvk, kind in sorted(self._kinds.items()):
            numbers = f"{kind.objects:>7} {kind.queued:>6} {kind.succeeded:>5} {kind.failed:>6}"
            kinds.append(f"{gvk[:name]:<{name}} {numbers}")
        runs = ["RUNS", *(f"  {run.subject}  {_doing(run)}" for run in self._runs.values())]
        errors = ["LAST ERROR", *(textwrap.wrap(self._error, width - 2)[:_ERROR_ROWS] or ["none"])]
        sections = [kinds, runs if len(runs) > 1 else [*runs, "  none"], errors]
        has_space = sum(map(len, sections)) + len(sections) + len(_SHORTEST_STORY) <= height
        above = [line for section in sections for line in (*section, *([""] if has_space else []))]
        above = above[: max(height - len(_SHORTEST_STORY), 0)]
        count = min(max(height - len(above) - 1, 1), _MOST_SHOWN)
        lines = [*above, "LATEST", *(f"  {line}" for line in self._lines[-count:])]
        return [line[:width] for line in lines[-height:]]


def _doing(run: _Run) -> str:
    return f"task {run.tasks}: {run.task}" if run.tasks else run.reason


def _debug_message(output: str) -> str:
    """Return the message in the output of a `debug` task; the whole output in one line if it has another format."""
    rest = output
    while rest:
        _, _, rest = rest.partition(" => ")
        try:
            result = json.loads(rest)
        except ValueError:
            continue
        message = result.get("msg", result) if isinstance(result, dict) else result
        return " ".join((message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)).split())
    return " ".join(output.split())


def _subject_of(record: Mapping[str, Any]) -> str:
    kind = str(record["gvk"]).rpartition("Kind=")[2]
    name = "/".join(filter(None, (record.get("namespace"), record.get("name")))) if record.get("name") else ""
    return f"{kind} {name}".rstrip()


def samples(exposition: str) -> list[KindSample]:
    """Return the numbers of each kind from the operator's metrics in the exposition format."""
    objects: dict[str, int] = {}
    queued: dict[str, int] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == "ansible_operator_objects":
                objects[sample.labels["GVK"]] = int(sample.value)
            elif sample.name == "workqueue_depth":
                queued[sample.labels["name"]] = int(sample.value)
    return [KindSample(gvk, queued.get(_queue_of(gvk), 0), count) for gvk, count in objects.items()]


def _queue_of(gvk: str) -> str:
    """Return the name of the queue of `group/version, Kind=K` in the metrics."""
    group_version, _, kind = gvk.partition(", Kind=")
    group, _, version = group_version.rpartition("/")
    return controller_name(GVK(group, version, kind))


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
