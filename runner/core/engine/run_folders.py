"""Search for the output of an object's runs, in the run folders of an operator on this machine. Read-only.

Layout: `<group>/<version>/<Kind>/<namespace>/<name>/artifacts/<run>/stdout`, without the empty parts. Names of runs
sort by time. The last run of a deleted object is below `retention.DELETED`, for some minutes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from runner.agent import process_tree
from runner.core.engine import processes, retention, run_dir
from runner.core.engine.artifacts import LATEST
from runner.core.engine.job import Event
from runner.core.engine.output import JOB_OF_POD, STDOUT
from runner.values.errors import ConfigError, NotKeptError
from runner.values.objects import GVK, ObjectKey, first_names, type_name

_VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
_AFTER_KIND = 2
_MOST_NAMED = 10
_MOST_EVENTS = 5000
_LONGEST = 1 << 20
"""Maximum size of an event's file in bytes."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A run folder and its object."""

    folder: Path
    gvk: GVK
    key: ObjectKey
    is_deleted: bool = False

    def runs(self) -> list[str]:
        """Return the names of the runs that are kept, oldest first."""
        artifacts = self.folder / "artifacts"
        if not artifacts.is_dir():
            return []
        return sorted(entry.name for entry in artifacts.iterdir() if entry.is_dir() and entry.name != LATEST)

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
    known = [*_known(root), *_known(root / retention.DELETED, is_deleted=True)]
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
    for folder in retention.run_folders(root):
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
