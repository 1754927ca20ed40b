"""Source files of a project, observed for edits: the watches file, and the files that runs execute.

Contents count, not times. The reader of `validate` decides whether a project is valid.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from watchdog.events import FileClosedNoWriteEvent, FileOpenedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from runner.app.features import FEATURE_FIELDS
from runner.base.config.paths import SearchPath, ansible_configs
from runner.base.config.settings import Settings
from runner.compatibility import validation
from runner.core.content import files as content_files
from runner.core.content.files import BESIDE_A_PLAYBOOK, FileDigests
from runner.core.watches.watch import Content, Playbook, Role, Watch

_BESIDE = frozenset({".yml", ".yaml", ".json", ".cfg", ".ini", ".toml", ".j2", ".py"})
"""Suffixes of relevant files beside a playbook; logs may be there too."""
_NOISE = frozenset({".git", "__pycache__"})
"""Folders that programs write to without an edit."""


class Project:
    """The files of a project; a context in which they are observed."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], cwd: Path, notify: Callable[[], None]) -> None:
        """`notify` is called after changes of files, from another thread."""
        self._file = settings.watches_file.absolute()
        self._places = settings.search_path(environ, cwd)
        self._environ = environ
        self._cwd = cwd
        self._watches: tuple[Watch, ...] = ()
        """Watches of the last valid state."""
        self._digests = FileDigests()
        self._files: dict[str, str] = {}
        self._handler = _Handler(notify)
        self._observer = Observer()
        self._observed: dict[tuple[Path, bool], ObservedWatch] = {}

    def load(self) -> None:
        """Read the project. Raises ConfigError with file, line and advice if it is invalid."""
        relative = Path(os.path.relpath(self._file, self._cwd))
        loaded = validation.load(
            relative, environ=self._environ, cwd=self._cwd, search_path=self._places, features=FEATURE_FIELDS
        )
        self._watches = tuple(loaded.watches)
        if self._observer.is_alive():
            self._observe()

    def __enter__(self) -> Self:
        """Start to observe the files."""
        # watchdog may find a folder in a new folder twice, by an event and by a scan. The second watch replaces the
        # first, which needs no warning.
        warnings.filterwarnings("ignore", "Callback with id .* already exists for watch", RuntimeWarning)
        self._observer.start()
        self._observe()
        self._files = self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.stop()
        self._observer.join()

    def edited(self) -> tuple[str, ...]:
        """Return the files that changed since the last call, relative to the working directory."""
        before, self._files = self._files, self._take()
        changed = [path for path in sorted(before.keys() | self._files) if before.get(path) != self._files.get(path)]
        return tuple(os.path.relpath(path, self._cwd) for path in changed)

    def only_finalize(self, files: Iterable[str]) -> bool:
        """Return whether only finalizers execute these files: they are in roles that no watch runs otherwise."""
        finalizers = (watch.finalizer.content for watch in self._watches if watch.finalizer is not None)
        used = {watch.content.path for watch in self._watches}
        roles = [content.path for content in finalizers if isinstance(content, Role) and content.path not in used]
        return all(any(Path(self._cwd, file).is_relative_to(role) for role in roles) for file in files)

    def _take(self) -> dict[str, str]:
        paths = [self._file, *ansible_configs(self._environ, self._cwd)]
        for content in _contents(self._watches):
            paths += [path for path in content_files.of_content(content) if _counts(content, path)]
        for root in self._places.roles:
            paths += content_files.below(root)
        for root in self._places.collections:
            paths += content_files.of_collections(root)
        return self._digests.take(paths)

    def _observe(self) -> None:
        """Observe the folders of the current watches."""
        folders = set(_folders(self._file, self._cwd, self._places, self._watches))
        for place in self._observed.keys() - folders:
            self._observer.unschedule(self._observed.pop(place))
        for folder, deep in folders - self._observed.keys():
            self._observed[folder, deep] = self._observer.schedule(self._handler, str(folder), recursive=deep)


class _Handler(FileSystemEventHandler):
    """Reports changed files, from watchdog's thread."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Ignore reads, including those of the operator."""
        if isinstance(event, FileOpenedEvent | FileClosedNoWriteEvent):
            return
        paths = [Path(os.fsdecode(path)) for path in (event.src_path, event.dest_path) if path]
        if any(_NOISE.isdisjoint(path.parts) for path in paths):
            self._notify()


def _counts(content: Content, path: Path) -> bool:
    """Return whether a file is relevant, unlike logs beside a playbook."""
    is_beside = isinstance(content, Playbook) and path.parent == content.path.parent
    return not is_beside or path.suffix in _BESIDE


def _contents(watches: Iterable[Watch]) -> Iterator[Content]:
    for watch in watches:
        yield watch.content
        if watch.finalizer is not None:
            yield watch.finalizer.content


def _folders(file: Path, cwd: Path, places: SearchPath, watches: Iterable[Watch]) -> Iterator[tuple[Path, bool]]:
    """Yield the existing folders to observe, each with whether its subfolders count."""
    folders = [(file.parent, False), (cwd, False), *((root, True) for root in places.roles)]
    for content in _contents(watches):
        if isinstance(content, Playbook):
            folders += [
                (content.path.parent, False),
                *((content.path.parent / name, True) for name in BESIDE_A_PLAYBOOK),
            ]
        else:
            folders.append((content.path, True))
    for root in places.collections:
        folders.append((root, False))
        for collection in root.glob("*/*"):
            if collection.is_dir() and not collection.parent.name.endswith(".info"):
                folders.append((collection.parent, False))
                folders += [(collection, True)] if not (collection / "MANIFEST.json").is_file() else []
    deep = {folder for folder, whole in folders if whole}
    for folder, whole in dict.fromkeys(folders):
        if whole and folder.is_dir() and deep.isdisjoint(folder.parents):
            yield folder, True
        elif not whole and folder not in deep and deep.isdisjoint(folder.parents):
            yield next(parent for parent in (folder, *folder.parents) if parent.is_dir()), False
        elif whole and not folder.is_dir():
            yield next(parent for parent in folder.parents if parent.is_dir()), False
