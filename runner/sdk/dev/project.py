"""Source files of a project and their edits: the watches file, and the files that runs execute.

Contents count, not times. The reader of `validate` decides whether a project is valid.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.app.features import FEATURE_FIELDS
from runner.base.config.paths import ansible_configs
from runner.base.config.settings import Settings
from runner.core.content import files as content_files
from runner.core.content.files import FileDigests
from runner.core.watches import validation
from runner.core.watches.watch import Content, Playbook, Role, Watch
from runner.values.errors import EngineError

_BESIDE = frozenset({".yml", ".yaml", ".json", ".cfg", ".ini", ".toml", ".j2", ".py"})
"""Suffixes of relevant files beside a playbook; logs may be there too."""


class Project:
    """The files of a project."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], cwd: Path) -> None:
        self._file = settings.watches_file.absolute()
        self._places = settings.search_path(environ, cwd)
        self._environ = environ
        self._cwd = cwd
        self._watches: tuple[Watch, ...] = ()
        """Watches of the last valid state."""
        self._digests = FileDigests()
        self._files: dict[str, str] = {}

    def load(self) -> None:
        """Read the project. Raises ConfigError with file, line and advice if it is invalid."""
        relative = Path(os.path.relpath(self._file, self._cwd))
        loaded = validation.load(
            relative, environ=self._environ, cwd=self._cwd, search_path=self._places, features=FEATURE_FIELDS
        )
        self._watches = tuple(loaded.watches)

    def edited(self) -> tuple[str, ...]:
        """Return the files that changed since the last call, relative to the working directory; at first, all files."""
        before, self._files = self._files, self._digests.take(self._paths())
        changed = [path for path in sorted(before.keys() | self._files) if before.get(path) != self._files.get(path)]
        return tuple(os.path.relpath(path, self._cwd) for path in changed)

    def only_finalize(self, files: Iterable[str]) -> bool:
        """Return whether only finalizers execute these files: they are in roles that no watch runs otherwise."""
        finalizers = (watch.finalizer.content for watch in self._watches if watch.finalizer is not None)
        used = {watch.content.path for watch in self._watches}
        roles = [content.path for content in finalizers if isinstance(content, Role) and content.path not in used]
        return all(any(Path(self._cwd, file).is_relative_to(role) for role in roles) for file in files)

    def _paths(self) -> Iterator[Path]:
        yield from (self._file, *ansible_configs(self._environ, self._cwd))
        for content in (content for watch in self._watches for content in watch.contents):
            yield from _of(content)
        for root in self._places.roles:
            yield from content_files.below(root)
        for root in self._places.collections:
            yield from content_files.of_collections(root)


def _of(content: Content) -> Iterator[Path]:
    """Yield the relevant files of a role, or of a playbook, unlike logs beside it; none if it is gone."""
    try:
        for path in content_files.of_content(content):
            if not isinstance(content, Playbook) or path.parent != content.path.parent or path.suffix in _BESIDE:
                yield path
    except EngineError:
        return  # its files are missing, which is an edit
