"""Advice for failures whose cause is neither in their message nor in the role.

- A module that the kernel killed because memory ran out fails with an exit code, or without a result.
- A variable that is undefined is often one of the specification with a typing error.

Without I/O.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from runner.core.engine.job import Outcome, RunResult, TaskFailure

_UNDEFINED = re.compile(r"'([A-Za-z_]\w{0,99})' is undefined$")
_MOST_NAMES = 1000
"""Names of variables that are compared with an undefined one."""


def explain(result: RunResult, names: Iterable[str] = ()) -> RunResult:
    """Complete messages about undefined variables by the variable of a similar name.

    `names`: variables that the run received; they are read only for a message about an undefined one.
    """
    is_needed = any(_UNDEFINED.search(failure.message) for failure in result.failures)
    known = list(islice(names, _MOST_NAMES)) if is_needed else []
    return replace(result, failures=tuple(_explained(failure, known) for failure in result.failures))


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
