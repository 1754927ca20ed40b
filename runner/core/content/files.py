"""Files that the runs of a watch execute (roles, playbooks with the files beside them, collections), and their digest.

The digest also covers versions, fields of the watch, and the environment. Content counts, not times, so that a rebuilt
image of the same files has the same digest. An installed collection is identified by its manifest, so that thousands of
files need not be read. Limits of the digest are in docs/runs.md. Functions block on I/O; `ContentDigest` reads in a
thread, at most once in some seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from runner import __version__
from runner.base.config.paths import SearchPath, ansible_configs
from runner.core.watches.watch import INPUTS, INVENTORIES, Content, Playbook, Role, Watch
from runner.values.digests import digest
from runner.values.errors import EngineError

BESIDE_A_PLAYBOOK = (
    *("roles", "tasks", "vars", "defaults", "handlers", "templates", "files", "group_vars", "host_vars", "inventory"),
    *("playbooks", "library", "module_utils", "action_plugins", "callback_plugins", "filter_plugins", "lookup_plugins"),
    *("test_plugins", "vars_plugins"),
)
SKIPPED = frozenset({".git", "__pycache__", "molecule", ".venv"})
"""Folders without content that runs execute."""
_FRESH = 10.0
"""Seconds for which a digest is reused."""
_PACKAGES = ("ansible-core", "ansible", "ansible-runner", "kubernetes", "jinja2", "jsonpatch", "pyyaml")
_NOT_OF_RUNS = frozenset(
    {
        "line",
        "reconcile_period",
        "min_reconcile_period",
        "max_verbosity",
        "policy",
        "mode",
        "finalizer",
        "max_runner_artifacts",
        "more",
    }
)
"""Fields of a watch that do not affect the result of a run."""
_PASSING = (
    r"(HOSTNAME|PWD|OLDPWD|SHLVL|_|TERM|COLUMNS|LINES|TMPDIR|INVOCATION_ID|JOURNAL_STREAM|PYTEST_.*|POD_.*|KUBECONFIG|"
    r"KUBERNETES_.*|ANSIBLE_OPERATOR_.*|WATCH_NAMESPACE|ANSIBLE_OPERATOR_METRICS.*|OSDK_.*|"
    r"(SERVICES)_(SERVICE_(HOST|PORT.*)|PORT(_[0-9]+_.*)?))"
)
"""Variables that differ between pods, or with the Services of the namespace. The kubelet adds one for each Service such
as `WEB_PORT=tcp://10.0.0.1:80`; a `DB_PORT=5432` is a setting of the project."""


def of_content(content: Content) -> Iterator[Path]:
    """Yield a role's files, or a playbook and the files beside it.

    Raises:
        EngineError: there is none, for example while another version is checked out. It has no digest then: that of
            no files would look like changed content.
    """
    if not content.path.exists():
        raise EngineError(f"{content.path} does not exist, so nothing can be run; restore it")
    match content:
        case Role(path=path):
            yield from below(path)
        case Playbook(path=path):
            yield from (file for file in sorted(path.parent.iterdir()) if file.is_file())
            for name in BESIDE_A_PLAYBOOK:
                yield from below(path.parent / name)


def of_inventory(file: Path) -> Iterator[Path]:
    """Yield an inventory and the variables beside it."""
    yield file
    for name in ("group_vars", "host_vars"):
        yield from below(file.parent / name)


def of_collections(root: Path) -> Iterator[Path]:
    """Yield the manifest of each installed collection, and all files of one that is source."""
    for collection in sorted(root.glob("*/*")):
        manifest = collection / "MANIFEST.json"
        if manifest.is_file():
            yield manifest
        elif collection.is_dir() and not collection.parent.name.endswith(".info"):
            yield from below(collection)


def below(root: Path) -> Iterator[Path]:
    """Yield all files of a folder in order; none if it does not exist."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not leads_back(Path(folder, name)))
        for name in sorted(names):
            yield Path(folder, name)


def leads_back(path: Path) -> bool:
    """Return True for a link to a folder above it, such as `tests/roles` of a role. Its files would have no end."""
    if not path.is_symlink():
        return False
    target = path.resolve()
    return any(parent.resolve().is_relative_to(target) for parent in path.parents)


def _digest(path: Path) -> bytes:
    """Return the digest of a file, without reading it as a whole. Raises OSError, also if it is a pipe."""
    if not path.is_file():
        raise OSError(f"{path} is not a file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).digest()


@dataclass(slots=True)
class FileDigests:
    """Digests of files; an unchanged file is read once."""

    _files: dict[tuple[str, int, int, int], bytes] = field(default_factory=dict)

    def take(self, paths: Iterable[Path]) -> dict[str, str]:
        """Return the digest of each file; empty for one that cannot be read."""
        before, self._files = self._files, {}
        return {str(path): self._read(path, before) for path in dict.fromkeys(paths)}

    def _read(self, path: Path, before: Mapping[tuple[str, int, int, int], bytes]) -> str:
        try:
            status = path.stat()
            name = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
            known = before.get(name) or _digest(path)
        except OSError:
            return ""
        self._files[name] = known
        return known.hex()


@dataclass(slots=True)
class ContentDigest:
    """Digest of one watch's content, which all features of the watch share."""

    watch: Watch
    places: SearchPath
    ansible_args: str
    environ: Mapping[str, str]
    cwd: Path
    _files: FileDigests = field(default_factory=FileDigests)
    _known: str = ""
    _at: float = -_FRESH

    async def digest(self) -> str:
        """Return the digest, at most some seconds old."""
        is_known = bool(self._known) and time.monotonic() - self._at < _FRESH
        return self._known if is_known else await self.fresh()

    async def fresh(self) -> str:
        """Return the digest of the files as they are now."""
        began = time.monotonic()
        current = await asyncio.to_thread(self._look)
        if began >= self._at:  # a later call can have ended first
            self._known, self._at = current, began
        return current

    def _look(self) -> str:
        contents = self._files.take(self._paths())
        services = [name[:-5] for name, value in self.environ.items() if name.endswith("_PORT") and "://" in value]
        passing = re.compile(_PASSING.replace("SERVICES", "|".join(map(re.escape, services))))
        environ = {name: value for name, value in self.environ.items() if not passing.fullmatch(name)}
        values = {attribute.name: _plain(getattr(self.watch, attribute.name)) for attribute in fields(self.watch)}
        inputs = {name: value for name, value in values.items() if name not in _NOT_OF_RUNS}
        inputs |= {name: _plain(value) for name, value in self.watch.more.get(INPUTS).items()}
        return digest([contents, environ, inputs, self.ansible_args, _versions()])

    def _paths(self) -> Iterator[Path]:
        yield from of_content(self.watch.content)
        for file in self.watch.more.get(INVENTORIES):
            yield from of_inventory(file)
        folder = self.watch.content.path.parent
        beside = () if folder in self.places.roles else (tasks.parent for tasks in folder.glob("*/tasks"))
        for root in (*self.places.roles, *beside):
            yield from below(root)
        for root in self.places.collections:
            yield from of_collections(root)
        inventory = self.environ.get("ANSIBLE_INVENTORY", "")
        for path in (*ansible_configs(self.environ, self.cwd), *([self.cwd / inventory] if inventory else ())):
            yield from below(path) if path.is_dir() else (path,)


def _versions() -> dict[str, str]:
    return {"runner": __version__, "python": platform.python_version(), **dict(_installed(_PACKAGES))}


def _installed(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _plain(value: Any) -> Any:
    """Return a watch's field as JSON that is the same in each process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {attribute.name: _plain(getattr(value, attribute.name)) for attribute in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
