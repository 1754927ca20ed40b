"""Transaction on a project's files: all changes are written, or none.

`create` never replaces a file with different content. Files are written atomically, with their own line ends; if one
cannot be written, the previous ones are restored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from runner.base.config import atomic_file
from runner.base.yamlfile import edits
from runner.values.errors import ConfigError, OperatorError

_FILE_MODE = 0o666


@dataclass(slots=True)
class ChangeSet:
    """Planned changes below `root`."""

    root: Path
    _texts: dict[PurePosixPath, str] = field(default_factory=dict)
    _occupied: list[PurePosixPath] = field(default_factory=list)

    def create(self, path: PurePosixPath, text: str) -> None:
        """Write a new file. An equal file is unchanged; for other content, `apply` reports a conflict."""
        target = self.root / path
        if target.is_symlink() or target.exists():
            if not target.is_file() or target.read_bytes() != text.encode():
                self._occupied.append(path)
            return
        self._texts[path] = text

    def edit(self, path: PurePosixPath, change: Callable[[str], str]) -> None:
        """Change a file that exists, or that this set creates. A ConfigError of `change` passes through."""
        before = self.text(path)
        after = change(before)
        if after != before:
            self._texts[path] = after

    def text(self, path: PurePosixPath) -> str:
        """Return the planned content of a file.

        Raises:
            ConfigError: the file does not exist or is not readable.
        """
        if path in self._texts:
            return self._texts[path]
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file; run the command in a project's folder") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error

    def apply(self) -> tuple[list[str], list[str]]:
        """Write all files. Return the created paths and the changed paths.

        Raises:
            ConfigError: files with different content exist; nothing was written.
            OperatorError: a file could not be written; all changes were undone.
        """
        if self._occupied:
            names = "\n".join(f"{path}: already exists with different content" for path in sorted(self._occupied))
            raise ConfigError(f"{names}\nno file was written; move these files, or add the content manually")
        created: list[str] = []
        changed: list[str] = []
        undo: list[Callable[[], None]] = []
        try:
            for path, text in sorted(self._texts.items()):
                target = self.root / path
                existed = target.exists()
                self._make_folders(target.parent, undo)
                self._write(target, text, undo)
                (changed if existed else created).append(str(path))
        except OSError as error:
            for step in reversed(undo):
                step()
            raise OperatorError(f"cannot write {error.filename}: {error.strerror}; no file was changed") from error
        return created, changed

    def _make_folders(self, folder: Path, undo: list[Callable[[], None]]) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            undo.append(path.rmdir)

    @staticmethod
    def _write(target: Path, text: str, undo: list[Callable[[], None]]) -> None:
        # Write to the target of a link; do not replace the link.
        target = target.resolve()
        before = target.read_bytes() if target.exists() else None
        mode = target.stat().st_mode & 0o777 if before is not None else _FILE_MODE & ~_umask()
        atomic_file.write(target, edits.with_line_ends(text, (before or b"").decode()), mode)
        undo.append(target.unlink if before is None else lambda: atomic_file.write(target, before, mode))


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    current = os.umask(0o022)
    os.umask(current)
    return current
