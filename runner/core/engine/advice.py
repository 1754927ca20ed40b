"""Completion of the failures of a run by what their messages do not contain. Blocking I/O.

- A module that the kernel killed because memory ran out fails with an exit code, or without a result.
- A variable that is undefined is often one of the specification with a typing error.
- Ansible names the file of a template without a line, and of templates of `kubernetes.core` only the task. The place
  becomes the line if one file of the role's templates alone can have caused the message.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runner.core.engine.job import Job, Outcome, RunResult, TaskFailure

_UNDEFINED = re.compile(r"'([A-Za-z_]\w{0,99})' is undefined$")
_MOST_NAMES = 1000
"""Names of variables that are compared with an undefined one."""
_KEY = re.compile(r"^([A-Za-z_]\w{0,99}):", re.MULTILINE)
_MOST_DEFAULTS = 1 << 16
"""Characters of a role's defaults that are read."""
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


def explain(result: RunResult, job: Job) -> RunResult:
    """Complete messages about undefined variables by a similar name, and places by lines of templates."""
    is_needed = any(_UNDEFINED.search(failure.message) for failure in result.failures)
    known = list(itertools.islice(_variables(job), _MOST_NAMES)) if is_needed else []
    return replace(result, failures=tuple(placed(_explained(failure, known)) for failure in result.failures))


def _variables(job: Job) -> Iterator[str]:
    """Yield the variables that the run received, and the defaults of its role, if the operator can read them."""
    yield from job.extra_vars
    for path in job.content.path.glob("defaults/main.y*ml"):
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            yield from _KEY.findall(file.read(_MOST_DEFAULTS))


def _explained(failure: TaskFailure, names: Sequence[str]) -> TaskFailure:
    message = failure.message
    undefined = _UNDEFINED.search(message)
    alike = difflib.get_close_matches(undefined[1], names, 1, 0.8) if undefined else []
    return replace(failure, message=f"{message} (did you mean {alike[0]}?)") if alike else failure


def add_kills(result: RunResult, kills: int, memory: int, limit: int) -> RunResult:
    """Add the cause to each failure of a run during which the kernel killed processes because memory ran out.

    `kills` is the number of processes, `memory` the bytes that the operator may use, `limit` the bytes that a run may.
    """
    option = f"allows {limit >> 20} MiB" if limit else "is 0, so runs are not limited"
    text = (
        f" of the operator's container because memory ran out: the container may use {memory >> 20} MiB, and "
        f"--run-memory-limit {option}. Set a lower --run-memory-limit, fewer concurrent runs, or a higher memory limit "
        f"of the container"
    )
    return _with_kills(result, kills, text)


def add_kills_in_pod(result: RunResult, kills: int, limit: int) -> RunResult:
    """Add the cause to each failure of a run in a pod. `limit`: bytes that its container may use; 0: no limit."""
    where = f"its container reached its memory limit ({limit >> 20} MiB)" if limit else "its node had no memory left"
    return _with_kills(result, kills, f" because {where}; raise podTemplate.resources.limits.memory")


def _with_kills(result: RunResult, kills: int, why: str) -> RunResult:
    if not kills or result.outcome not in {Outcome.FAILED, Outcome.DIED}:
        return result
    text = f"during this run, the kernel killed {kills} process{'es' if kills > 1 else ''}{why}"
    failures = tuple(replace(failure, message=f"{failure.message} ({text})") for failure in result.failures)
    return replace(result, failures=failures, message=f"{result.message} ({text})" if result.message else "")


def placed(failure: TaskFailure) -> TaskFailure:
    """Replace the place of a failure by the line of a template, if that is known."""
    file, _, line = failure.path.rpartition(":")
    is_line = line.isdecimal()
    path = Path(file if is_line else failure.path)
    name, is_syntax = _NAME.search(failure.message), _SYNTAX.search(failure.message)
    # A role can print a place: one that is not printable is no path, and the system refuses it with another error.
    if not path.is_absolute() or not failure.path.isprintable() or not (name or is_syntax):
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
