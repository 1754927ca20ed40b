"""Edits of the watches file and of the files that runs execute, while the operator runs.

Owns which folders are observed, and what an edit changes: the watches, or the content of some kinds. Guarantees: an
edit is delivered only if the whole project is valid. An invalid one is logged once, and the last valid state stays
until the project is valid again. Contents count, not times.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from watchdog.events import FileClosedNoWriteEvent, FileOpenedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from runner import log
from runner.config.paths import SearchPath, ansible_configs
from runner.errors import ConfigError
from runner.objects import GVK
from runner.unchanged import content_files
from runner.unchanged.content_files import BESIDE_A_PLAYBOOK, FileDigests
from runner.watches.watch import Content, LoadedWatches, Playbook, Watch

_SETTLE = 0.2
"""Seconds without a change before an edit is read: editors write in several steps."""
_MOST_WAITS = 25
"""Number of such intervals after which an edit is read although changes continue."""
_BESIDE = frozenset({".yml", ".yaml", ".json", ".cfg", ".ini", ".toml", ".j2", ".py"})
"""Suffixes of relevant files beside a playbook or the watches file; logs may be there too."""
_REQUIREMENTS = "requirements.yml"
_NOISE = frozenset({".git", "__pycache__"})
"""Folders that programs write to without an edit."""
_MOST_NAMED = 5

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class ProjectEdit:
    """A valid edit of the project."""

    loaded: LoadedWatches | None
    """The new watches; None if they are the same."""
    kinds: frozenset[GVK]
    """Kinds whose content changed."""
    files: tuple[str, ...]
    """Changed files."""

    @property
    def why(self) -> str:
        """Return the edit in a few words."""
        more = f" and {len(self.files) - _MOST_NAMED} more" if len(self.files) > _MOST_NAMED else ""
        return f"{', '.join(self.files[:_MOST_NAMED])}{more} changed"


class ProjectSources(Protocol):
    """Files of the project; a context in which they are observed."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def edited(self) -> ProjectEdit:
        """Wait for the next edit."""
        ...


class FixedSources:
    """Files that are not observed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def edited(self) -> ProjectEdit:
        """See ProjectSources."""
        await asyncio.Event().wait()
        raise AssertionError


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """Paths of the project."""

    watches_file: Path
    places: SearchPath
    cwd: Path
    load: Callable[[], LoadedWatches]
    """Reads the watches; raises a ConfigError if they, or their roles and playbooks, are invalid."""


class WatchedSources:
    """Files that are observed for edits."""

    def __init__(self, project: ProjectPaths, loaded: LoadedWatches) -> None:
        """`loaded` are the watches in force."""
        self._project = project
        self._loaded = loaded
        self._digests = FileDigests()
        self._files: dict[str, str] = {}
        self._problem = ""
        self._changed = asyncio.Event()
        self._observer = Observer()
        self._observed: dict[tuple[Path, bool], ObservedWatch] = {}

    async def __aenter__(self) -> Self:
        """Start to observe: a difference from the watches in force is an edit already."""
        self._handler = _Handler(asyncio.get_running_loop(), self._changed)
        # watchdog may find a folder in a new folder twice, by an event and by a scan. The second watch replaces the
        # first, which needs no warning.
        warnings.filterwarnings("ignore", "Callback with id .* already exists for watch", RuntimeWarning)
        self._observer.start()
        await asyncio.to_thread(self._observe)
        self._files = await asyncio.to_thread(self._take)
        self._changed.set()
        _log.info("Watching the project for edits", file=str(self._project.watches_file), folders=len(self._observed))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._observer.stop()
        await asyncio.to_thread(self._observer.join)

    async def edited(self) -> ProjectEdit:
        """See ProjectSources."""
        while True:
            await self._changed.wait()
            for _ in range(_MOST_WAITS):
                self._changed.clear()
                await asyncio.sleep(_SETTLE)
                if not self._changed.is_set():
                    break
            edit = await asyncio.to_thread(self._look)
            if edit is not None:
                return edit

    def _look(self) -> ProjectEdit | None:
        try:
            loaded = self._project.load()
        except ConfigError as error:
            self._log_problem(str(error))
            return None
        if self._problem:
            _log.info("The project is valid again")
        self._problem = ""
        others = loaded if _plain(loaded.watches) != _plain(self._loaded.watches) else None
        self._loaded = loaded
        self._observe()
        before, self._files = self._files, self._take()
        changed = [
            Path(path) for path in sorted(before.keys() | self._files) if before.get(path) != self._files.get(path)
        ]
        requirements = self._project.watches_file.absolute().with_name(_REQUIREMENTS)
        if requirements in changed:
            command = f"ansible-galaxy collection install -r {_REQUIREMENTS}"
            _log.warning("requirements.yml was edited; install the collections to apply it", command=command)
        kinds = affected(loaded.watches, [path for path in changed if path != requirements])
        files = [str(self._project.watches_file)] if others else []
        files += [os.path.relpath(path, self._project.cwd) for path in changed]
        return ProjectEdit(others, kinds, tuple(files)) if others or kinds else None

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            lines = problem.splitlines()
            _log.error("The edit is invalid and not applied; fix it", problem="; ".join(lines))
        self._problem = problem

    def _take(self) -> dict[str, str]:
        places, cwd = self._project.places, self._project.cwd
        paths = [self._project.watches_file.absolute().with_name(_REQUIREMENTS), *ansible_configs(os.environ, cwd)]
        for content in _contents(self._loaded.watches):
            paths += [path for path in content_files.of_content(content) if self._counts(content, path)]
        for root in places.roles:
            paths += content_files.below(root)
        for root in places.collections:
            paths += content_files.of_collections(root)
        return self._digests.take(paths)

    def _counts(self, content: Content, path: Path) -> bool:
        """Return whether a file is relevant: not logs beside a playbook, and not the watches file, which is parsed."""
        is_beside = isinstance(content, Playbook) and path.parent == content.path.parent
        return not is_beside or (path.suffix in _BESIDE and path != self._project.watches_file.absolute())

    def _observe(self) -> None:
        """Observe the folders of the current watches."""
        file, places = self._project.watches_file.absolute(), self._project.places
        wanted = set(_folders(file, self._project.cwd, places, self._loaded.watches))
        for place in self._observed.keys() - wanted:
            self._observer.unschedule(self._observed.pop(place))
        for folder, deep in wanted - self._observed.keys():
            try:
                self._observed[folder, deep] = self._observer.schedule(self._handler, str(folder), recursive=deep)
            except OSError as error:
                _log.warning("Cannot watch a folder for edits", folder=str(folder), error=str(error))


class _Handler(FileSystemEventHandler):
    """Notifies the loop of changed files, from watchdog's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed_event: asyncio.Event) -> None:
        self._loop = loop
        self._changed = changed_event

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Ignore reads, including those of the operator."""
        if isinstance(event, FileOpenedEvent | FileClosedNoWriteEvent):
            return
        paths = [Path(os.fsdecode(path)) for path in (event.src_path, event.dest_path) if path]
        if any(_NOISE.isdisjoint(path.parts) for path in paths) and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)


def affected(watches: Iterable[Watch], changed: Iterable[Path]) -> frozenset[GVK]:
    """Return the kinds whose runs may have another result. Pure.

    A file in a watch's role affects that watch, and every watch with a playbook. Any other file may affect all.
    """
    watches = list(watches)
    owners: dict[Path, set[GVK]] = {}
    for watch in watches:
        for content in _contents([watch]):
            if not isinstance(content, Playbook):
                owners.setdefault(content.path, set()).add(watch.gvk)
    everybody = {watch.gvk for watch in watches}
    playbooks = {watch.gvk for watch in watches if any(isinstance(each, Playbook) for each in _contents([watch]))}
    found: set[GVK] = set()
    for path in changed:
        of = [kinds for folder, kinds in owners.items() if path.is_relative_to(folder)]
        found |= set().union(*of) | playbooks if of else everybody
    return frozenset(found)


def _contents(watches: Iterable[Watch]) -> Iterator[Content]:
    for watch in watches:
        yield watch.content
        if watch.finalizer is not None:
            yield watch.finalizer.content


def _plain(watches: Iterable[Watch]) -> list[Watch]:
    """Return watches without their lines in the file."""
    return [replace(watch, line=0) for watch in watches]


def _folders(file: Path, cwd: Path, places: SearchPath, watches: Iterable[Watch]) -> Iterator[tuple[Path, bool]]:
    """Yield the existing folders to observe, each with whether its subfolders count."""
    wanted = [(file.parent, False), (cwd, False), *((root, True) for root in places.roles)]
    for content in _contents(watches):
        if isinstance(content, Playbook):
            wanted += [
                (content.path.parent, False),
                *((content.path.parent / name, True) for name in BESIDE_A_PLAYBOOK),
            ]
        else:
            wanted.append((content.path, True))
    for root in places.collections:
        wanted.append((root, False))
        for collection in root.glob("*/*"):
            if collection.is_dir() and not collection.parent.name.endswith(".info"):
                wanted.append((collection.parent, False))
                wanted += [(collection, True)] if not (collection / "MANIFEST.json").is_file() else []
    deep = {folder for folder, whole in wanted if whole}
    for folder, whole in dict.fromkeys(wanted):
        if whole and folder.is_dir() and deep.isdisjoint(folder.parents):
            yield folder, True
        elif not whole and folder not in deep and deep.isdisjoint(folder.parents):
            yield next(each for each in (folder, *folder.parents) if each.is_dir()), False
        elif whole and not folder.is_dir():
            yield next(each for each in folder.parents if each.is_dir()), False
