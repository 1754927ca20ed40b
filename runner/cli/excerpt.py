"""Output of a run on a terminal: first the cause of a failure, and the result of its task. Long values are shortened.

The sentences are those of the log, of conditions and of Events. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from runner.base.console import Line
from runner.core.engine import events as events_of
from runner.core.engine.blocks import FAILURES
from runner.core.engine.events import End, Progress
from runner.core.engine.job import Event
from runner.values.objects import mapping

_LONGEST = 300
"""Characters of a value, and of a line."""
_MOST = 20
"""Lines of a value, and entries of a list."""
_FOLDED = frozenset({"invocation", "managedFields", "stdout_lines", "stderr_lines", "changed", "failed", "exception"})
"""Parts of a result that repeat others, or that the task itself has."""
_HEADER = re.compile(
    r"ansible-playbook \[core |  [a-z ]+(?:path|location|version|file) = |  libyaml = |No config file found|Using \S+ "
    r"as config|Skipping callback '|PLAYBOOK: |\d+ plays? in |redirecting \(type: "
)
"""Begin of a line with which Ansible describes itself."""
_STYLES = {"fatal:": "error", "failed:": "error", "ERROR": "error", "[ERROR]": "error", "changed:": "warning"}
_STYLES |= {"ok:": "good", "TASK": "title", "PLAY": "title", "RUNNING": "title", "task": "faint"}

HINT = Line("\nThese are the failed tasks, with shortened values. --all shows all output of the run.", "faint")


def of_failure(events: Iterable[Event]) -> list[Line]:
    """Return the causes of a failed run, and the results of its failed tasks; empty if no event has a cause."""
    progress, failed = Progress(), list[Event]()
    for event in events:
        progress = events_of.fold(progress, event)
        if event.get("event") in FAILURES:
            failed.append(event)
    result = events_of.conclude(progress, End(None, None, 1, "", "", 0.0, hosts=True))
    if not result.failures:
        return [Line(line, "error") for line in result.message.splitlines()] if progress.errors else []
    lines = []
    for failure in result.failures:
        host = f" on {failure.host}" if failure.host else ""
        lines += [Line(failure.message, "error"), Line(f"  task {failure.task!r}{host}, {failure.path}", "error")]
    tasks = {failure.task for failure in result.failures}
    of_tasks = (event for event in failed if mapping(event.get("event_data")).get("task") in tasks)
    return [*lines, *(line for event in of_tasks for line in _result(event))]


def line(text: str) -> Line | None:
    """Return a line of the output with its colour, shortened; None if Ansible describes itself in it."""
    if _HEADER.match(text):
        return None
    return Line(_short(text), _STYLES.get(text.partition(" ")[0], ""))


def _result(event: Event) -> Iterator[Line]:
    data = mapping(event.get("event_data"))
    result = {name: value for name, value in mapping(data.get("res")).items() if not name.startswith("_ansible")}
    yield Line("")
    yield Line(f"TASK [{data.get('task')}]", "title")
    yield Line(f"failed on {data.get('host')}:", "error")
    for row in yaml.dump(_folded(result), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000).splitlines():
        yield Line(f"  {row}")


def _folded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _folded(part) for name, part in value.items() if name not in _FOLDED}
    if isinstance(value, list):
        more = [f"… {len(value) - _MOST} more"] if len(value) > _MOST else []
        return [*map(_folded, value[:_MOST]), *more]
    if not isinstance(value, str):
        return value
    lines = value.replace("\r", "").rstrip().split("\n")
    more = [f"… {len(lines) - _MOST} more lines"] if len(lines) > _MOST else []
    return "\n".join([*(_short(line.rstrip()) for line in lines[:_MOST]), *more])


def _short(text: str) -> str:
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}… ({more} more characters)"


class _Dumper(yaml.SafeDumper):
    """Writer of texts of several lines as blocks."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)
