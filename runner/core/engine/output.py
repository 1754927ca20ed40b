"""Output of runs: where it is, its search in the run folders of this machine, and its display. Read-only.

Layout: `<group>/<version>/<Kind>/<namespace>/<name>/artifacts/<run>/stdout`, without the empty parts. Names of runs
sort by time. The last run of a deleted object is below `artifacts.DELETED`, for some minutes. Below a run it is that of
https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifacts-directory-hierarchy
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from runner.agent import process_tree
from runner.base.config.settings import RUNNER_DIR
from runner.core.engine import artifacts, processes, run_dir
from runner.core.engine.artifacts import KEEP_NONE, LATEST
from runner.core.engine.job import Event, Job
from runner.values.errors import ConfigError, NotKeptError
from runner.values.objects import GVK, ObjectKey, first_names, type_name

STDOUT = "stdout"
"""File in a run's folder with all its output."""
JOB_OF_POD = "pod"
"""File in the folder of a run in a pod: namespace and name of its Job, with a slash between them."""
_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
_AFTER_KIND = 2
_MOST_NAMED = 10
_MOST_EVENTS = 5000
_LONGEST = 1 << 20
"""Maximum size of an event's file in bytes."""
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


@dataclass(frozen=True, slots=True)
class Kept:
    """A run folder and its object."""

    folder: Path
    gvk: GVK
    key: ObjectKey
    is_deleted: bool = False

    def runs(self) -> list[str]:
        """Return the names of the runs that are kept, oldest first."""
        runs = self.folder / "artifacts"
        if not runs.is_dir():
            return []
        return sorted(entry.name for entry in runs.iterdir() if entry.is_dir() and entry.name != LATEST)

    def output(self, ident: str) -> Path:
        """Return the path of a run's output."""
        return self.folder / "artifacts" / ident / STDOUT

    def job_of_pod(self, ident: str) -> str:
        """Return the Job of a run in a pod as `namespace/name`; empty for a process."""
        try:
            return self.output(ident).with_name(JOB_OF_POD).read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def is_live(self, ident: str) -> bool:
        """Return True if a run is in progress. A run in a pod is, until an operator has its result."""
        if self.job_of_pod(ident):
            return not self.output(ident).with_name("status").exists()
        going = run_dir.going_on(self.folder)
        return (
            going is not None and going.ident == ident and processes.operator_lives(going.marker, process_tree.table())
        )

    def status(self, ident: str) -> str:
        """Return the status of a run from ansible-runner; `unknown` if its operator died before writing it."""
        try:
            return self.output(ident).with_name("status").read_text(encoding="utf-8").strip() or "unknown"
        except OSError:
            return "unknown"

    def events(self, ident: str) -> Iterator[Event]:
        """Yield the events of a run in order. Files are named `<counter>-<uuid>.json`."""
        folder = self.output(ident).with_name("job_events")
        try:
            names = [file.name for file in folder.iterdir() if file.name.endswith(".json")]
        except OSError:
            return
        numbered = sorted((int(name.split("-")[0]), name) for name in names if name.split("-")[0].isdecimal())
        for _, name in numbered[:_MOST_EVENTS]:
            file = folder / name
            try:
                event = orjson.loads(file.read_bytes()) if file.stat().st_size <= _LONGEST else None
            except (OSError, ValueError):
                continue  # removed meanwhile, or incomplete
            if isinstance(event, dict):
                yield event


class UnknownKindError(NotKeptError):
    """The folders contain no run of a kind."""

    def __init__(self, message: str, kinds: Sequence[GVK]) -> None:
        """`kinds` are those with runs."""
        super().__init__(message)
        self.kinds = kinds


def find(root: Path, object_name: str, namespace: str | None) -> Kept:
    """Return the object of `KIND/NAME`. KIND is as for kubectl (`Kind`, plural, `kind.group`, `kind.version.group`).

    Raises:
        ConfigError: `object_name` does not have this form.
        UnknownKindError: there is no run of this kind; the message lists the existing kinds.
        NotKeptError: there is no such object, or several; the message lists the existing ones.
    """
    kind, slash, name = object_name.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise ConfigError(f"{object_name!r} names no object: write KIND/NAME, such as Memcached/sample")
    known = [*_known(root), *_known(root / artifacts.DELETED, is_deleted=True)]
    if not known:
        raise NotKeptError(
            f"no run is kept below {root}: call this where the operator runs (in its pod, with `kubectl exec`), and "
            "give the --runner-dir that it has"
        )
    of_kind = [folder for folder in known if kind.lower() in kind_names(folder.gvk)]
    if not of_kind:
        gvks = sorted({folder.gvk for folder in known})
        kinds = [type_name(gvk) for gvk in gvks]
        raise UnknownKindError(f"no run of a kind {kind!r} is kept below {root}{instead(kind, kinds)}", gvks)
    matching = [folder for folder in of_kind if folder.key.name == name and namespace in {None, folder.key.namespace}]
    matching = [folder for folder in matching if not folder.is_deleted] or matching
    if not matching:
        where = f" in namespace {namespace}" if namespace else ""
        objects = sorted(str(folder.key) for folder in of_kind)
        raise NotKeptError(
            f"no run of {kind} {name!r}{where} is kept below {root}{instead(name, objects)}. The last run of a "
            "deleted object is kept for some minutes; afterwards, use the log of the operator"
        )
    if len(matching) > 1:
        which = ", ".join(sorted(f"{type_name(folder.gvk)} {folder.key}" for folder in matching))
        raise NotKeptError(f"{object_name} may be one of {which}: select it with --namespace, or KIND.GROUP/NAME")
    return matching[0]


def _known(root: Path, *, is_deleted: bool = False) -> Iterable[Kept]:
    for folder in artifacts.run_folders(root):
        parts = folder.relative_to(root).parts
        if parts and parts[0].startswith("."):  # of no existing object
            continue
        core = len(parts) > _AFTER_KIND and _VERSION.fullmatch(parts[0]) is not None
        group, version, kind, *rest = ("", *parts) if core else (*parts, "", "", "")[: max(len(parts), 3)]
        if rest and len(rest) <= _AFTER_KIND:
            yield Kept(folder, GVK(group, version, kind), ObjectKey("".join(rest[:-1]), rest[-1]), is_deleted)


def kind_names(gvk: GVK) -> set[str]:
    """Return all names of a kind that a user may write, in lower case."""
    kind = gvk.kind.lower()
    plurals = {kind, f"{kind}s", f"{kind}es", f"{kind.removesuffix('y')}ies"}
    suffixes = {"", f".{gvk.group}".rstrip("."), f".{gvk.version}.{gvk.group}".rstrip(".")}
    return {f"{plural}{suffix}".lower() for plural in plurals for suffix in suffixes}


def instead(name: str, existing: Sequence[str]) -> str:
    """Return the first existing names, the most similar first, for a message about a name that does not exist."""
    close = [*difflib.get_close_matches(name, existing, n=_MOST_NAMED), *existing]
    names = list(dict.fromkeys(close))
    return f"; there are {first_names(names, _MOST_NAMED)}"


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
