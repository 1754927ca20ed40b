"""Modules and files with templates that a fork server prepares before the first run of a role or playbook.

This is a cheap guess: it searches for full names of modules in collections, and for plays that gather facts. The engine
adds the modules that it misses after a run has used them.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.core.watches.watch import Content, Role

_TASK = re.compile(r"^\s*(?:-\s+)?([a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*)\s*:", re.MULTILINE)
_PLAY = re.compile(r"^\s*-?\s*hosts\s*:", re.MULTILINE)
_GATHERS_NOT = re.compile(r"^\s*(?:-\s+)?gather_facts\s*:\s*(?:false|no)\b", re.MULTILINE | re.IGNORECASE)
_GATHERS = re.compile(
    r"^\s*(?:-\s+)?(?:ansible\.(?:builtin|legacy)\.)?(?:gather_facts|setup)\s*:(?!\s*(?:false|no)\b)",
    re.MULTILINE | re.IGNORECASE,
)
_DEPENDENCY = re.compile(r"^\s*-\s+(?:role:\s*|name:\s*)?[\"']?([\w.-]+)", re.MULTILINE)
_TASKS = ("tasks", "handlers")
_VALUES = (*_TASKS, "defaults", "vars")
_TEMPLATES = "templates"
_MOST_FILES = 500
_FACTS = "ansible.legacy.setup"
"""The module that gathers facts. Its `module_utils` are as many as those of all other common modules together."""


def modules(content: Content, *, explicit: bool) -> frozenset[str]:
    """Return full names, such as `kubernetes.core.k8s`. Blocking I/O: call it in a thread.

    `explicit` is True if plays gather facts only if they contain `gather_facts: true`.
    """
    names: set[str] = set()
    gathers = not explicit and _gathers_by_default(content)
    for path in itertools.islice(_files(content, _TASKS), _MOST_FILES):
        text = _read(path)
        names.update(_TASK.findall(text))
        gathers = gathers or bool(_GATHERS.search(text))
    return frozenset(names | {_FACTS} if gathers else names)


def files(content: Content) -> frozenset[str]:
    """Return the paths of YAML files whose values can be templates. Blocking I/O: call it in a thread."""
    return frozenset(map(str, itertools.islice(_files(content, _VALUES), _MOST_FILES)))


def template_files(content: Content) -> frozenset[str]:
    """Return the paths of files that are templates. Blocking I/O: call it in a thread."""
    paths = (path for path in _files(content, [_TEMPLATES]) if path != content.path)
    return frozenset(map(str, itertools.islice(paths, _MOST_FILES)))


def _gathers_by_default(content: Content) -> bool:
    """Return True if a play does not contain `gather_facts`. The play of a role never does."""
    if isinstance(content, Role):
        return True
    text = _read(content.path)
    return len(_PLAY.findall(text)) > len(_GATHERS_NOT.findall(text))


def _files(content: Content, folders: Iterable[str]) -> Iterator[Path]:
    if isinstance(content, Role):
        yield from _role(content.path, folders, set())
        return
    parent = content.path.parent
    yield content.path
    yield from _in_folders(parent, folders)
    for role in sorted((parent / "roles").glob("*")):
        yield from _role(role, folders, set())


def _role(role: Path, folders: Iterable[str], seen: set[Path]) -> Iterator[Path]:
    if role in seen:
        return
    seen.add(role)
    yield from _in_folders(role, folders)
    for meta in _in_folders(role, ["meta"]):
        for name in _DEPENDENCY.findall(_read(meta)):
            if (role.parent / name).is_dir():
                yield from _role(role.parent / name, folders, seen)


def _in_folders(parent: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        paths = (path for path in sorted((parent / name).rglob("*")) if path.is_file())
        yield from (path for path in paths if name == _TEMPLATES or path.suffix in {".yml", ".yaml"})


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""
