"""Lookups that ignore their errors (`errors='ignore'` or `'warn'`), so that no run of their role counts for `prune`.

No event of a run shows that such a lookup failed: it returns nothing, and the objects that it named would seem unused.
The files of a watch's content count, and the roles that these name, because they can include them. Blocking I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.unchanged import content_files
from runner.watches.watch import Content, Role

_SUFFIXES = frozenset({"", ".j2", ".jinja2", ".json", ".yaml", ".yml"})
_LARGEST = 1024 * 1024
_CALL = re.compile(r"\b(?:lookup|query|q)\s*\(")
_IGNORES = re.compile(r"""\berrors\s*=\s*['"](?:ignore|warn)['"]""")
_LONGEST_CALL = 2000


def ignored_lookup(content: Content, roots: Iterable[Path]) -> str:
    """Return the first lookup with ignored errors, with file and line; empty if there is none.

    `roots` contain the roles that the content can include by name.
    """
    left: list[Content] = [content]
    roles = {role.path.name: role for root in roots for role in _roles(root)}
    while left:
        for file in content_files.of_content(left.pop()):
            text = _read(file)
            if line := _line(text):
                return f"a lookup ignores its errors ({file}:{line})"
            left += [roles.pop(name) for name in list(roles) if name in text]
    return ""


def _roles(root: Path) -> Iterator[Role]:
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if folder.is_dir() and folder.name not in content_files.SKIPPED:
            yield Role(folder.name, folder)


def _read(file: Path) -> str:
    try:
        is_read = file.suffix in _SUFFIXES and file.is_file() and file.stat().st_size <= _LARGEST
        return file.read_text(encoding="utf-8", errors="replace") if is_read else ""
    except OSError:
        return ""  # Ansible reports a file that it cannot read


def _line(text: str) -> int:
    """Return the line of the first lookup with ignored errors; 0 if there is none."""
    for call in _CALL.finditer(text):
        rest = text[call.end() : call.end() + _LONGEST_CALL].partition("}}")[0].partition("\n- ")[0]
        is_comment = text[text.rfind("\n", 0, call.start()) + 1 :].lstrip().startswith("#")
        if not is_comment and _IGNORES.search(rest):
            return text.count("\n", 0, call.start()) + 1
    return 0
