"""Lookups in the text of what a run executed. No event of Ansible contains the lookups of a task. Blocking I/O.

Ansible executes lookups in check mode too, so that a trial cannot show what they change. A lookup that ignores its
errors returns nothing if it fails, so that the objects that it names would seem unused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.core.content import files as content_files
from runner.core.watches.watch import Content, Playbook

_LOOKUP = re.compile(
    r"""\b(?:lookup|query|q)\s*\(\s*(?:\\?['"](?:ansible\.(?:builtin|legacy)\.)?(?P<name>[\w.]+)\\?['"])?"""
    r"|^[ -]*with_(?P<loop>\w+)\s*:",
    re.MULTILINE,
)
_IGNORES = re.compile(r"""\berrors\s*=\s*\\?['"](?:ignore|warn)\\?['"]""")
_END = re.compile(r"\}\}(?!\s*[,)\]}|])|^\s*- ", re.MULTILINE)
"""End of the text of a call: of its expression, not of maps in it, or of its item of a list."""
_LONGEST = 2000
"""Characters of a call that are searched."""
_SUFFIXES = frozenset({".yml", ".yaml", ".j2"})
_TASKS = frozenset({"tasks", "handlers"})
_OF_ROLE = (*sorted(_TASKS), "defaults", "templates", "vars")
_BESIDE = ("vars", "group_vars", "host_vars", "templates")
_LARGEST = 1 << 20
_DECIDES = re.compile(r"[ -]*(?:when|loop|with_\w+)\s*:")


class Lookup(NamedTuple):
    """A lookup in a file."""

    place: str
    """File and line, as `file:line`."""
    name: str
    """Name of the plugin, without the collections that Ansible comes with; empty if an expression contains it."""
    ignores_errors: bool
    items: tuple[str, ...] = ()
    """Places of the items of lists, such as tasks, that contain it; the innermost first."""
    decides: bool = False
    """Whether it decides if its task is executed."""

    def is_reached(self, tasks: Mapping[str, bool]) -> bool:
        """Return False if the lookup is in a skipped task. `tasks`: whether they were executed, by their places."""
        return self.decides or next((tasks[place] for place in self.items if place in tasks), True)


def of_run(content: Content, tasks: Iterable[str]) -> Iterator[Lookup]:
    """Yield the lookups in the files of a run's content, and of the roles of the executed tasks (`file:line`)."""
    for path in sorted({path for root in _roots(content, tasks) for path in _below(root)}):
        yield from _read(path)


def in_text(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of each lookup, and whether it ignores its errors."""
    for match in _LOOKUP.finditer(text):
        if text[text.rfind("\n", 0, match.start()) + 1 : match.end()].lstrip().startswith("#"):
            continue
        rest = text[match.end() : match.end() + _LONGEST]
        end = _END.search(rest)
        ignores = match["loop"] is None and _IGNORES.search(rest[: end.start() if end else None]) is not None
        yield text.count("\n", 0, match.start()) + 1, match["name"] or match["loop"] or "", ignores


def is_of_hiding_task(place: str) -> bool:
    """Return whether the task at a place has `failed_when`. False if it cannot be read."""
    file, _, line = place.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        first, *others = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[int(line) - 1 :]
        column = len(first) - len(first.lstrip(" -"))
        own = itertools.takewhile(lambda text: not text[:column].strip(), others)
        return any(text[column:].startswith("failed_when") for text in (first, *own))
    return False


def _roots(content: Content, tasks: Iterable[str]) -> Iterator[Path]:
    """Yield files and folders that the run read."""
    if isinstance(content, Playbook):
        yield content.path
        yield from (content.path.parent / name for name in _BESIDE)
        roles = set[Path]()
    else:
        roles = {content.path}
    for file in {Path(task.rpartition(":")[0]) for task in tasks if task.startswith("/")}:
        yield file
        roles |= {folder.parent for folder in file.parents if folder.name in _TASKS}
    yield from (role / name for role in sorted(roles) for name in _OF_ROLE)


def _below(root: Path) -> Iterator[Path]:
    files = [root] if root.is_file() else content_files.below(root)
    return (path for path in files if path.suffix in _SUFFIXES)


def _read(path: Path) -> tuple[Lookup, ...]:
    """Read a file; one that the operator cannot read is in the image of a pod only."""
    try:
        stat = path.stat()
        return _in_file(path, stat.st_mtime_ns, stat.st_size) if stat.st_size <= _LARGEST else ()
    except OSError:
        return ()


@functools.lru_cache(maxsize=4096)
def _in_file(path: Path, _modified: int, _size: int) -> tuple[Lookup, ...]:
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    return tuple(
        Lookup(
            f"{path}:{line}",
            name,
            ignores,
            tuple(f"{path}:{number}" for number in _items(lines, line)),
            decides=_DECIDES.match(lines[line - 1]) is not None,
        )
        for line, name, ignores in in_text(text)
    )


def _items(lines: Sequence[str], line: int) -> Iterator[int]:
    """Yield the items of lists that contain a line, by their first lines; the innermost first."""
    outer = len(lines[line - 1])
    for number in range(line, 0, -1):
        text = lines[number - 1]
        column = len(text) - len(text.lstrip())
        if column < outer and text.strip():
            outer = column
            if text.lstrip().startswith("- "):
                yield number
