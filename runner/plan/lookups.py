"""Lookups that run commands. Ansible executes lookups in check mode too, so that a plan cannot contain their changes.

Only the text of roles shows them: no event contains the lookups of a task. Blocking I/O.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from runner.plan.tasks import UnplannedTask
from runner.unchanged import content_files
from runner.watches.watch import Content, Playbook

_RUNS_COMMANDS = re.compile(
    r"""(?:lookup|query|\bq)\s*\(\s*\\?['"](?:ansible\.(?:builtin|legacy)\.)?(?P<name>pipe|lines)\\?['"]"""
    r"|^[ -]*with_(?P<loop>pipe|lines)\s*:",
    re.MULTILINE,
)
_SUFFIXES = frozenset({".yml", ".yaml", ".j2"})
_TASKS = frozenset({"tasks", "handlers"})
_OF_ROLE = (*sorted(_TASKS), "defaults", "templates", "vars")
_BESIDE = ("vars", "group_vars", "host_vars", "templates")
_LARGEST = 1 << 20
_REASON = "it runs its command for real, in plans too"


def found(content: Content, tasks: Iterable[str]) -> tuple[UnplannedTask, ...]:
    """Return the lookups in the files of a run's content, and of the roles of the executed tasks (`file:line`)."""
    files = sorted({path for root in _roots(content, tasks) for path in _below(root)})
    return tuple(
        UnplannedTask(f"lookup {name}", f"{path}:{line}", f"lookup {name}", _REASON)
        for path in files
        for line, name in _read(path)
    )


def in_text(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each lookup that runs a command."""
    for match in _RUNS_COMMANDS.finditer(text):
        if not text[text.rfind("\n", 0, match.start()) + 1 : match.end()].lstrip().startswith("#"):
            yield text.count("\n", 0, match.start()) + 1, match["name"] or match["loop"]


def _roots(content: Content, tasks: Iterable[str]) -> Iterator[Path]:
    """Yield files and folders that the run read."""
    if isinstance(content, Playbook):
        yield content.path
        yield from (content.path.parent / name for name in _BESIDE)
        roles = set[Path]()
    else:
        roles = {content.path}
    for file in {Path(each.rpartition(":")[0]) for each in tasks if each.startswith("/")}:
        yield file
        roles |= {each.parent for each in file.parents if each.name in _TASKS}
    yield from (role / name for role in sorted(roles) for name in _OF_ROLE)


def _below(root: Path) -> Iterator[Path]:
    files = [root] if root.is_file() else content_files.below(root)
    return (path for path in files if path.suffix in _SUFFIXES)


def _read(path: Path) -> tuple[tuple[int, str], ...]:
    """Read a file; one that the operator cannot read is in the image of a pod only."""
    try:
        stat = path.stat()
        return _in_file(path, stat.st_mtime_ns, stat.st_size) if stat.st_size <= _LARGEST else ()
    except OSError:
        return ()


@functools.lru_cache(maxsize=4096)
def _in_file(path: Path, _modified: int, _size: int) -> tuple[tuple[int, str], ...]:
    return tuple(in_text(path.read_text(errors="replace")))
