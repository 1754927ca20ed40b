"""Location of a run's output, the command that shows it, and its display without `managedFields`. Pure.

Source of the layout:
https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifacts-directory-hierarchy
"""

from __future__ import annotations

import re
from pathlib import Path

from runner.base.config.settings import RUNNER_DIR
from runner.core.engine.artifacts import KEEP_NONE
from runner.core.engine.job import Job
from runner.values.objects import GVK, ObjectKey, type_name

STDOUT = "stdout"
"""File in a run's folder with all its output."""
_IN_LINE = re.compile(r'"managedFields": ?\[')
_OPENING = re.compile(r'(?P<margin>[ +-]?\s*)(?:"managedFields": ?\[|managedFields:)\s*$')
"""First line of a list over several lines: JSON with indentation, perhaps in a diff, or YAML."""
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]]')


def pointer(job: Job) -> str:
    """Return a sentence with the location of a run's output; empty if the output is not kept."""
    if job.max_artifacts == KEEP_NONE:
        return ""
    command = logs_command(job.gvk, job.key, job.run_dir)
    return f"All of its output, where the operator runs: {command} (run folder {job.run_dir})"


JOB_OF_POD = "pod"
"""File in the folder of a run in a pod: namespace and name of its Job, with a slash between them."""


def logs_command(gvk: GVK, key: ObjectKey, run_dir: Path) -> str:
    """Return the command that shows the output of an object's last run."""
    command = f"ansible-operator logs {type_name(gvk)}/{key.name}"
    if key.namespace:
        command += f" -n {key.namespace}"
    if not run_dir.is_relative_to(RUNNER_DIR):
        depth = len([part for part in (gvk.group, gvk.version, gvk.kind, *key) if part])
        command += f" --runner-dir={Path(run_dir).parents[depth - 1]}"
    return command


def pod_log_command(job: str) -> str:
    """Return the command that shows the log of a run's pod, from the text in `JOB_OF_POD`."""
    namespace, _, name = job.partition("/")
    return f"kubectl logs -n {namespace} job/{name}"


def node_command(pod: str) -> str:
    """Return the command that shows the node in the `pod` of a `RunResult`; empty if it is unknown."""
    node = pod.partition(" on ")[2]
    return f"kubectl describe node {node}" if node else ""


class ManagedFieldsFilter:
    """Removes `managedFields` of Kubernetes objects from a run's output, in JSON on one or many lines and in YAML.

    Task results at verbosity 1 or more contain whole objects, and `managedFields` is often most of them.
    """

    def __init__(self) -> None:
        self._partial = ""
        self._column: int | None = None
        """Column of the key whose list is being omitted."""

    def feed(self, text: str) -> str:
        """Return the complete lines of `text` to show; keep an incomplete last line."""
        *lines, self._partial = (self._partial + text).split("\n")
        return "".join(f"{shown}\n" for line in lines if (shown := self._line(line)) is not None)

    def end(self) -> str:
        """Return the incomplete last line."""
        shown, self._partial = self._line(self._partial), ""
        return shown or ""

    def _line(self, line: str) -> str | None:
        """Return the line to show; None if it is part of a list over several lines."""
        if self._column is not None:
            text = line[1:] if line.startswith(("+", "-")) else line
            column, text = len(line) - len(text.lstrip()), text.lstrip()
            if column > self._column or (column == self._column and text.startswith("- ")):
                return None
            closes = column == self._column and text.rstrip() in {"]", "],"}
            self._column = None
            if closes:
                return None
        if "managedFields" not in line:
            return line
        if (match := _OPENING.match(line)) is not None:
            self._column = len(match["margin"])
            return None
        return _without_lists(line)


def _without_lists(line: str) -> str:
    """Remove the lists `managedFields` that begin and end in a line of JSON, with one comma each."""
    parts, position = [], 0
    while (match := _IN_LINE.search(line, position)) is not None:
        end = _end_of_list(line, match.end())
        if end is None:
            break
        before = line[position : match.start()]
        if line.startswith(",", end):
            end += 2 if line.startswith(", ", end) else 1
        else:
            before = before.rstrip().removesuffix(",")
        parts.append(before)
        position = end
    return "".join((*parts, line[position:]))


def _end_of_list(line: str, start: int) -> int | None:
    """Return the position after the `]` of a list whose `[` is before `start`; None if the line does not contain it."""
    depth = 1
    for token in _TOKEN.finditer(line, start):
        depth += {"[": 1, "]": -1}.get(token[0], 0)
        if not depth:
            return token.end()
    return None
