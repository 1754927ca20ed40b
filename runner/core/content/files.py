"""The files that runs execute (roles, playbooks with the files beside them, collections), and their digests.

Content counts, not times. An installed collection is identified by its manifest, so that thousands of files need not
be read. Blocking I/O.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.core.watches.watch import Content, Playbook, Role
from runner.values.errors import EngineError

BESIDE_A_PLAYBOOK = (
    *("roles", "tasks", "vars", "defaults", "handlers", "templates", "files", "group_vars", "host_vars", "inventory"),
    *("playbooks", "library", "module_utils", "action_plugins", "callback_plugins", "filter_plugins", "lookup_plugins"),
    *("test_plugins", "vars_plugins"),
)
SKIPPED = frozenset({".git", "__pycache__", "molecule", ".venv"})
"""Folders without content that runs execute."""


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
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            yield Path(folder, name)


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
            known = before.get(name) or hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
        except OSError:
            return ""
        self._files[name] = known
        return known.hex()
