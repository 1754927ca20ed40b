"""Modules in the tasks of a role or playbook, to preload them before the first run.

This is a cheap guess: it searches for full names of modules in collections. The engine adds the modules that it misses
after a run has used them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from runner.watches.watch import Content, Role

_TASK = re.compile(r"^\s*(?:-\s+)?([a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*)\s*:", re.MULTILINE)
_DEPENDENCY = re.compile(r"^\s*-\s+(?:role:\s*|name:\s*)?[\"']?([\w.-]+)", re.MULTILINE)
_FOLDERS = ("tasks", "handlers")
_MOST_FILES = 500


def modules(content: Content) -> frozenset[str]:
    """Return full names, such as `kubernetes.core.k8s`. Blocking I/O: call it in a thread."""
    found: set[str] = set()
    for number, path in enumerate(_files(content)):
        if number >= _MOST_FILES:
            break
        found.update(_TASK.findall(_read(path)))
    return frozenset(found)


def _files(content: Content) -> Iterator[Path]:
    if isinstance(content, Role):
        yield from _role(content.path, set())
        return
    folder = content.path.parent
    yield content.path
    for name in _FOLDERS:
        yield from _yaml(folder / name)
    for role in sorted((folder / "roles").glob("*")):
        yield from _role(role, set())


def _role(role: Path, seen: set[Path]) -> Iterator[Path]:
    if role in seen:
        return
    seen.add(role)
    for name in _FOLDERS:
        yield from _yaml(role / name)
    for meta in _yaml(role / "meta"):
        for name in _DEPENDENCY.findall(_read(meta)):
            if (role.parent / name).is_dir():
                yield from _role(role.parent / name, seen)


def _yaml(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.y*ml")) if path.suffix in {".yml", ".yaml"})


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""
