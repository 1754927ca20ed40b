"""Lines of template files for failed tasks.

Ansible names the file of a template without a line, and of templates of `kubernetes.core` only the task. The place
becomes the line if one file of the role's templates alone can have caused the message. Blocking I/O.
"""

from __future__ import annotations

import itertools
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from runner.core.engine.job import RunResult, TaskFailure

_NAME = re.compile(
    r"'([A-Za-z_]\w{0,99})' is undefined|has no attribute '([A-Za-z_]\w{0,99})'"
    r"|[Nn]o (?:filter|test) named '([\w.]{1,99})'"
)
_SYNTAX = re.compile(
    r"unexpected |expected token|Encountered unknown tag|[Uu]nexpected end of template|Missing end of "
)
_TASKS, _TEMPLATES = frozenset({"tasks", "handlers"}), "templates"
_MOST_FILES, _LARGEST = 200, 1 << 18
_COMPARED = 80
"""Characters of a message about syntax: the cause of a failure may be shortened."""


def placed(result: RunResult) -> RunResult:
    """Replace the places of failures by lines of templates, where these are known."""
    return replace(result, failures=tuple(map(_placed, result.failures)))


def _placed(failure: TaskFailure) -> TaskFailure:
    file, _, line = failure.path.rpartition(":")
    is_line = line.isdecimal()
    path = Path(file if is_line else failure.path)
    name, is_syntax = _NAME.search(failure.message), _SYNTAX.search(failure.message)
    if not path.is_absolute() or not (name or is_syntax):
        return failure
    word = next(filter(None, name.groups())) if name else ""
    if word and is_line and any(_lines(text, word) for _, text in _texts([path])):
        return failure  # the expression of the task itself
    texts = _texts(_templates(path) if is_line else [path])
    if word:
        hits = [f"{template}:{lines[0]}" for template, text in texts if (lines := _lines(text, word))]
    else:
        errors = ((template, *_error(text)) for template, text in texts)
        hits = [f"{template}:{at}" for template, what, at in errors if what and what in failure.message]
    return replace(failure, path=hits[0]) if len(hits) == 1 else failure


def _templates(task_file: Path) -> Iterator[Path]:
    """Yield the templates beside a task: of its role, or of its playbook."""
    role = next((folder.parent for folder in task_file.parents if folder.name in _TASKS), task_file.parent)
    return itertools.islice((path for path in sorted((role / _TEMPLATES).rglob("*")) if path.is_file()), _MOST_FILES)


def _texts(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the texts of files. A pod may name any path, so a device, a pipe or a file of the kernel is not read."""
    for path in paths:
        try:
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= _LARGEST:
                yield path, path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it is in the image of a pod only, or was removed meanwhile: the place stays as it is
            continue


def _lines(text: str, word: str) -> list[int]:
    """Return the lines that contain a word outside of comments."""
    whole = re.compile(rf"(?<![\w.-]){re.escape(word)}(?!\w)" if "." in word else rf"\b{word}\b")
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if whole.search(line) and not line.lstrip().startswith("#")]


def _error(text: str) -> tuple[str, int]:
    """Return the message and line of the first error of syntax; empty if there is none."""
    from jinja2 import Environment, TemplateSyntaxError  # noqa: PLC0415 - slow, and only needed here

    try:
        Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]).parse(text)  # noqa: S701 - it renders nothing
    except TemplateSyntaxError as error:
        return " ".join(str(error.message).split())[:_COMPARED], error.lineno
    return "", 0
