"""State of a running operator for developers, from its log lines and metrics. Pure.

Output: a line for each important event, or the lines of a full screen.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from runner.monitoring.metrics import controller_name
from runner.objects import GVK

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
    who: str
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
    _runs: dict[str, _Run] = field(default_factory=dict)
    _story: list[str] = field(default_factory=list)
    _error: str = ""
    metrics_port: int | None = None
    """Port of the operator's metrics, after the operator has logged it."""
    page: str = ""
    """URL of the status page, after the operator has logged it."""

    def take(self, line: str) -> str | None:
        """Update the state from a line of the operator's log. Return a line for the developer, or None."""
        try:
            said = json.loads(line) if line.startswith("{") else None
        except ValueError:
            said = None
        if not isinstance(said, dict):
            return None
        told = self._told(said)
        if told is not None:
            self._story = [*self._story, told][-_MOST_SHOWN:]
        return told

    def count(self, samples: Iterable[KindSample]) -> None:
        """Update the state from the metrics."""
        for sample in samples:
            kind = self._kinds.setdefault(sample.kind, _Kind())
            kind.queued, kind.objects = sample.queued, sample.objects

    def _told(self, said: Mapping[str, Any]) -> str | None:
        tellers = {
            "Serving": self._serving,
            "Serving the status page": self._page,
            "Starting": self._starting,
            "Watching": self._watching,
            "Run started": self._start,
            "Task output": self._task,
            "Run ended": self._end,
            "A role or playbook was edited": self._notable,
            "Stopped": self._notable,
        }
        teller = tellers.get(said.get("msg", ""), self._notable if said.get("level") in _LEVELS else None)
        return teller(said) if teller is not None else None

    def _serving(self, said: Mapping[str, Any]) -> None:
        if "/metrics" in said["paths"]:
            self.metrics_port = said["port"]

    def _page(self, said: Mapping[str, Any]) -> str | None:
        known, self.page = self.page, said["url"]
        return f"status page {self.page}" if self.page != known else None

    def _starting(self, said: Mapping[str, Any]) -> str:
        self._kinds.clear()
        return f"Kubernetes {said['server']}, ansible-core {said['ansible_core']}"

    def _watching(self, said: Mapping[str, Any]) -> str:
        self._kinds.setdefault(said["gvk"], _Kind())
        return f"watching {said['gvk']}"

    def _start(self, said: Mapping[str, Any]) -> str:
        run = self._runs[said["job"]] = _Run(_who(said), said["reason"])
        return f"{run.who}: run started, {run.reason}"

    def _task(self, said: Mapping[str, Any]) -> str | None:
        run, task = self._runs.get(said["job"]), said.get("task")
        if run is not None and said.get("action") in _DEBUG and said.get("ansible_event") in _MESSAGES:
            run.tasks += task != run.task
            run.task = task or run.task
            return f"{run.who}: {_debug_message(said['output'])}"
        if run is None or not task or task == run.task:
            return None
        run.task, run.tasks = task, run.tasks + 1
        return f"{run.who}: task {run.tasks}: {task}"

    def _end(self, said: Mapping[str, Any]) -> str:
        self._runs.pop(said["job"], None)
        kind = self._kinds.setdefault(said["gvk"], _Kind())
        good = said["outcome"] == "succeeded"
        kind.succeeded, kind.failed = kind.succeeded + good, kind.failed + (not good)
        told = f"{_who(said)}: {said['outcome']} in {said['seconds']:.1f} s"
        if good:
            return f"{told}, ok {said['ok']}, changed {said['changed']}"
        return told + (f": {said['error']}" if said.get("error") else "")

    def _notable(self, said: Mapping[str, Any]) -> str:
        details = "; ".join(str(said[name]) for name in _DETAILS if said.get(name))
        who = f"{_who(said)}: " if said.get("gvk") else ""
        place = f" ({said['path']})" if said.get("path") else ""
        told = f"{who}{said['msg']}" + (f": {details}" if details else "") + place
        if said["level"] != "info":
            told = f"{said['level']}: {told}"
        if said["level"] in {"error", "critical"}:
            self._error = told
        return told

    def picture(self, width: int, height: int = 1000) -> list[str]:
        """Return the current state, in lines of at most `width` characters, and at most `height` lines.

        If there is little space, the newest event stays.
        """
        name = max(min(_KIND_WIDTH, width - _NUMBERS_WIDTH), len("KIND"))
        kinds = [f"{'KIND':<{name}} {'OBJECTS':>7} {'QUEUE':>6} {'OK':>5} {'FAILED':>6}"]
        for gvk, kind in sorted(self._kinds.items()):
            numbers = f"{kind.objects:>7} {kind.queued:>6} {kind.succeeded:>5} {kind.failed:>6}"
            kinds.append(f"{gvk[:name]:<{name}} {numbers}")
        runs = ["RUNS", *(f"  {run.who}  {_doing(run)}" for run in self._runs.values())]
        errors = ["LAST ERROR", *(textwrap.wrap(self._error, width - 2)[:_ERROR_ROWS] or ["none"])]
        sections = [kinds, runs if len(runs) > 1 else [*runs, "  none"], errors]
        is_roomy = sum(map(len, sections)) + len(sections) + len(_SHORTEST_STORY) <= height
        above = [line for section in sections for line in (*section, *([""] if is_roomy else []))]
        above = above[: max(height - len(_SHORTEST_STORY), 0)]
        count = min(max(height - len(above) - 1, 1), _MOST_SHOWN)
        lines = [*above, "LATEST", *(f"  {each}" for each in self._story[-count:])]
        return [line[:width] for line in lines[-height:]]


def _doing(run: _Run) -> str:
    return f"task {run.tasks}: {run.task}" if run.tasks else run.reason


def _debug_message(output: str) -> str:
    """Return the message in the output of a `debug` task; the whole output in one line if it has another format."""
    rest = output
    while rest:
        _, _, rest = rest.partition(" => ")
        try:
            found = json.loads(rest)
        except ValueError:
            continue
        shown = found.get("msg", found) if isinstance(found, dict) else found
        return " ".join((shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)).split())
    return " ".join(output.split())


def _who(said: Mapping[str, Any]) -> str:
    kind = str(said["gvk"]).rpartition("Kind=")[2]
    name = "/".join(filter(None, (said.get("namespace"), said.get("name")))) if said.get("name") else ""
    return f"{kind} {name}".rstrip()


def samples(exposition: str) -> list[KindSample]:
    """Return the numbers of each kind from the operator's metrics in the exposition format."""
    objects: dict[str, int] = {}
    queued: dict[str, int] = {}
    for family in text_string_to_metric_families(exposition):
        for each in family.samples:
            if each.name == "ansible_operator_objects":
                objects[each.labels["GVK"]] = int(each.value)
            elif each.name == "workqueue_depth":
                queued[each.labels["name"]] = int(each.value)
    return [KindSample(gvk, queued.get(_queue_of(gvk), 0), count) for gvk, count in objects.items()]


def _queue_of(gvk: str) -> str:
    """Return the name of the queue of `group/version, Kind=K` in the metrics."""
    group_version, _, kind = gvk.partition(", Kind=")
    group, _, version = group_version.rpartition("/")
    return controller_name(GVK(group, version, kind))
