"""Fold of a run's events into its result. Pure.

Promises: a rescued or ignored failure is not a failure of the run. The result describes in a sentence how the run
ended, regardless of the cause. The result of a task can be missing: each meaning that is read from it has a default.
Reads the events that ansible-runner reports for ansible-core 2.18 to 2.22
(https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifacts-directory-hierarchy).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from runner.base.config import duration
from runner.core.engine import causes
from runner.core.engine.job import Event, HostRecap, Outcome, Recap, RunResult, TaskFailure
from runner.values.objects import mapping, maps

UNKNOWN_FAILURE = "unknown playbook failure"
TASK_STARTS = frozenset({"playbook_on_task_start", "playbook_on_handler_task_start"})
"""Events of ansible-runner at the start of a task."""
REFUSED = 78
"""Exit code of ansible-playbook if a callback of the operator ended the run before its first task."""

_LOCALHOST = "localhost"
_REQUEUE_ACTIONS = frozenset({"requeue_after", "operator_sdk.util.requeue_after"})
_TERMINAL_ACTIONS = frozenset({"fail_terminal", "operator_sdk.util.fail_terminal"})
_ERROR_LINE = re.compile(r"^(ERROR[!:]|\[ERROR\]:|Traceback |ansible-playbook: error:)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CLOSED = re.compile(r"(Shared c|C)onnection to \S+ closed\.?$")
"""Line of ssh after the output of a command."""
_OUTPUT = ("stderr", "module_stderr", "module_stdout")
"""Output in a result with the cause of a failure. `stdout` of a command is its result, which no message contains."""
_MAX_LINE = 500
_MAX_MESSAGE = 4096
_MAX_ITEMS = 10
_MAX_ERROR_LINES = 12
_UNKNOWN_PERIOD = 60.0
"""Seconds until the next run if the result of `requeue_after` is missing."""
_TOO_LARGE = "The result of the task exceeds MAX_EVENT_RES, so its message is only in the output of the run"


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A failed task that may be rescued later. `task` is the number of tasks that had started."""

    host: str
    unreachable: bool
    task: int
    failure: TaskFailure


@dataclass(frozen=True, slots=True)
class Progress:
    """State of the fold after some events."""

    events: int = 0
    tasks: int = 0
    task: str = ""
    path: str = ""
    items: tuple[str, ...] = ()
    """Messages of the current task's failed items."""
    suspects: tuple[_Suspect, ...] = ()
    errors: tuple[str, ...] = ()
    """Ansible's output outside of any task, from its first `ERROR!` on."""
    last_line: str = ""
    """Last line of this output."""
    stats: Event | None = None
    requeue_after: float | None = None
    unfinished: bool = False
    unmatched: bool = False
    """True if a play had no hosts."""

    @property
    def is_idle(self) -> bool:
        """True if a play had no hosts, and no other one had hosts beside localhost."""
        return self.unmatched and self.stats is not None and not host_recaps(self.stats)


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended, according to its processes.

    `hosts`: whether the run had hosts beside localhost. `unmatched` is that of `job.Inventory`.
    `stopped` is the reason if the operator ended it. `code` and `signal` are ansible-playbook's. `fault` is the problem
    that prevented or interrupted the run, as the end of a sentence.
    """

    stopped: Outcome | None
    deadline: float | None
    code: int | None
    signal: str
    fault: str
    duration: float
    hosts: bool = False
    unmatched: str = ""


def fold(progress: Progress, event: Event) -> Progress:
    """Return the progress after one more event."""
    progress = replace(progress, events=progress.events + 1)
    data = _data(event)
    match event.get("event"):
        case "playbook_on_task_start" | "playbook_on_handler_task_start":
            task, path = str(data.get("task", "")), str(data.get("task_path", ""))
            progress = replace(progress, tasks=progress.tasks + 1, task=task, path=path, items=())
        case "runner_item_on_failed":
            progress = replace(progress, items=(*progress.items, failure_message(data, ())))
        case "runner_on_failed" if data.get("ignore_errors"):
            progress = replace(progress, items=())
        case "runner_on_failed" | "runner_on_unreachable" as name:
            progress = _suspect(progress, event, unreachable=name == "runner_on_unreachable")
        case "runner_item_on_ok" | "runner_on_ok":
            progress = _ok(progress, data)
        case "playbook_on_stats":
            progress = replace(progress, stats=event)
        case "playbook_on_no_hosts_matched":
            progress = replace(progress, unmatched=True)
        case "verbose" | "error":
            progress = _raw(progress, event)
    return progress


def withheld(progress: Progress, reason: str) -> Progress:
    """Return the progress without text of events, which may contain unknown secrets."""
    suspects = tuple(
        replace(suspect, failure=replace(suspect.failure, message=reason)) for suspect in progress.suspects
    )
    errors = (reason,) if progress.errors else ()
    return replace(progress, items=(), suspects=suspects, errors=errors, last_line="")


def _ok(progress: Progress, data: Mapping[str, Any]) -> Progress:
    if not _is(data, _REQUEUE_ACTIONS):
        return progress
    result = mapping(data.get("res"))
    if _is_unknown(result):
        return replace(progress, requeue_after=_UNKNOWN_PERIOD, unfinished=True)
    period = result.get("period")
    with contextlib.suppress(ValueError):  # the module itself rejects an invalid duration
        if isinstance(period, str):
            return replace(progress, requeue_after=duration.parse(period), unfinished=result.get("done") is not True)
    return progress


def _raw(progress: Progress, event: Event) -> Progress:
    """Keep Ansible's output outside of any task, from its first error on."""
    begun = bool(progress.errors)
    output = []
    lines = _COLOUR.sub("", str(event.get("stdout", ""))).splitlines()
    for line in lines:
        begun = begun or bool(_ERROR_LINE.match(line))
        if begun and line.strip():
            output.append(line.rstrip())
    last = next((line.strip() for line in reversed(lines) if line.strip()), progress.last_line)
    return replace(progress, errors=(*progress.errors, *output)[:_MAX_ERROR_LINES], last_line=last)


def _data(event: Event) -> Mapping[str, Any]:
    return mapping(event.get("event_data"))


def _suspect(progress: Progress, event: Event, *, unreachable: bool) -> Progress:
    data = _data(event)
    host = str(data.get("host", ""))
    failure = TaskFailure(
        task=str(data.get("task") or ""),
        message=failure_message(data, progress.items),
        path=_origin(event),
        terminal=_is(data, _TERMINAL_ACTIONS) and _is_terminal(mapping(data.get("res"))),
        host="" if host == _LOCALHOST else host,
        unreachable=unreachable,
    )
    suspect = _Suspect(host, unreachable, progress.tasks, failure)
    return replace(progress, suspects=(*progress.suspects, suspect), items=())


def _origin(event: Event) -> str:
    """Return the place of the expression that failed, or of its task; of argument specs, the role's folder for them."""
    data = _data(event)
    result = mapping(data.get("res"))
    role = mapping(result.get("validate_args_context")).get("path")
    if isinstance(role, str) and role:
        return f"{role}/meta"  # Ansible itself inserts the task that validates arguments
    texts = (event.get("stdout"), result.get("msg"))
    places = (causes.origin(text) for text in texts if isinstance(text, str))
    return next(filter(None, places), str(data.get("task_path") or ""))


def _is(data: Mapping[str, Any], actions: frozenset[str]) -> bool:
    return not actions.isdisjoint({data.get("task_action"), data.get("resolved_action")})


def _is_unknown(result: Mapping[str, Any]) -> bool:
    """Return whether the result is missing: ansible-runner empties one above `MAX_EVENT_RES`, and `no_log` hides it."""
    return not result or "censored" in result


def _is_terminal(result: Mapping[str, Any]) -> bool:
    """Return whether the module ran, for one item of a loop at least. A broken `when` fails the task before that."""
    return _is_unknown(result) or result.get("terminal") is True or any(map(_is_terminal, maps(result.get("results"))))


def moment(event: Event) -> float:
    """Return the time of an event in seconds since the epoch; 0 if it has none."""
    try:
        time = datetime.fromisoformat(str(event.get("created", "")))
    except ValueError:
        return 0.0
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def failure_message(data: Mapping[str, Any], items: tuple[str, ...]) -> str:
    """Return why a task failed: the cause, and what helps against it where that is known.

    For includes it is the `reason`, for `no_log` the place of the failure. Rule: each message names the cause, also if
    only the output of a command or of a crashed module has it.
    """
    result = mapping(data.get("res"))
    msg = next((value for key in ("msg", "reason") if (value := result.get(key))), None)
    hidden = _hidden(data) if "censored" in result else _TOO_LARGE if data.get("res") == {} else ""
    text = msg if isinstance(msg, str) else json.dumps(msg, ensure_ascii=False, default=str) if msg else ""
    if text and isinstance(details := result.get("details"), str) and details and details not in text:
        text = f"{text.strip()}: {details}"
    cause = str(causes.of_task(data, text, list(_causes(result))))
    text = f"{cause} ({hidden})" if cause and hidden else cause or hidden or UNKNOWN_FAILURE
    distinct = [item for item in dict.fromkeys(items) if item != text]
    if distinct:
        more = f"; and {len(distinct) - _MAX_ITEMS} more" if len(distinct) > _MAX_ITEMS else ""
        text = f"{text}: {'; '.join(distinct[:_MAX_ITEMS])}{more}"
    return _cut(text.strip() or UNKNOWN_FAILURE)


def _causes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last line of the output of a command or module, or of each module that gathered facts."""
    failed = result.get("failed_modules")
    if isinstance(failed, dict):
        for name, module_result in list(failed.items())[:_MAX_ITEMS]:
            if isinstance(module_result, dict):
                which = f"{name}: " if len(failed) > 1 else ""  # the message names one
                yield f"{which}{next(_causes(module_result), '') or module_result.get('msg') or UNKNOWN_FAILURE}"
        return
    # With a terminal, as for raw and script on a host, all output is in stdout, and ssh's last word in stderr.
    is_joined = any(map(_CLOSED.match, str(result.get("stderr")).splitlines()))
    for name in (*_OUTPUT, "stdout") if is_joined else _OUTPUT:
        text = result.get(name)
        lines = _COLOUR.sub("", text).splitlines() if isinstance(text, str) else []
        line = next((line.strip() for line in reversed(lines) if line.strip() and not _CLOSED.match(line.strip())), "")
        if line:
            yield line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
            return


def _hidden(data: Mapping[str, Any]) -> str:
    """Return the name and path of a failed task whose result `no_log` hides."""
    path = f" ({data['task_path']})" if data.get("task_path") else ""
    return f"task {str(data.get('task') or '')!r}{path} failed; no_log hides its result"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}… ({len(text)} characters in all)"


def recap(event: Event, *, every_host: bool = False) -> Recap:
    """Return the play recap of localhost, or the sum of all hosts, from `playbook_on_stats`."""
    data = _data(event)

    def count(name: str) -> int:
        hosts = data.get(name)
        if not isinstance(hosts, dict):
            return 0
        return sum(hosts.values()) if every_host else int(hosts.get(_LOCALHOST, 0))

    return Recap(
        ok=count("ok"),
        changed=count("changed"),
        skipped=count("skipped"),
        failures=count("failures"),
        completion=_completion(str(event.get("created", ""))),
    )


def host_recaps(event: Event) -> tuple[HostRecap, ...]:
    """Return the recap of each host but localhost from `playbook_on_stats`."""
    data = _data(event)
    counts = ("ok", "changed", "failures", "dark")
    names = {name for count in (*counts, "skipped", "processed") for name in data.get(count) or {}} - {_LOCALHOST}
    return tuple(
        HostRecap(name, *(int((data.get(count) or {}).get(name, 0)) for count in counts)) for name in sorted(names)
    )


def _hosts(progress: Progress, stats: Event) -> tuple[HostRecap, ...]:
    """Return the recaps of the hosts. With `ignore_unreachable`, Ansible counts a host that it did not reach as ok."""
    missed = {suspect.host for suspect in progress.suspects if suspect.unreachable}
    return tuple(replace(of, unreachable=max(of.unreachable, int(of.name in missed))) for of in host_recaps(stats))


def _completion(created: str) -> str:
    """Return the time with microseconds, also if they are zero."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(created).isoformat(timespec="microseconds")
    return created


def conclude(progress: Progress, end: End) -> RunResult:
    """Return the result of the run."""
    outcome, message = _verdict(progress, end)
    return RunResult(
        outcome=outcome,
        recap=recap(progress.stats, every_host=end.hosts) if progress.stats else None,
        hosts=_hosts(progress, progress.stats) if progress.stats and end.hosts else (),
        failures=_failures(progress) if outcome is Outcome.FAILED else (),
        message=message,
        requeue_after=progress.requeue_after,
        unfinished=progress.unfinished,
        duration=end.duration,
        refused=end.code == REFUSED and outcome is Outcome.FAILED and not progress.tasks,
    )


def _verdict(progress: Progress, end: End) -> tuple[Outcome, str]:
    if end.code == 0:  # also if the operator was about to end it
        is_idle = bool(end.unmatched) and progress.is_idle
        return (Outcome.FAILED, end.unmatched) if is_idle else (Outcome.SUCCEEDED, "")
    if end.stopped is not None:
        return end.stopped, f"{_why_stopped(end)} {_where(progress)}"
    if end.signal or end.fault:
        begun = bool(end.signal or progress.events)
        return (Outcome.DIED if begun else Outcome.NOT_STARTED), _why_died(progress, end)
    if _failures(progress):
        return Outcome.FAILED, ""
    if progress.errors:
        return Outcome.FAILED, _cut(_error(progress.errors, end))
    last = f"; its last output: {_cut(progress.last_line)}" if progress.last_line else ""
    return Outcome.DIED, f"ansible-playbook ended with exit code {end.code} {_where(progress)}{last}"


def _error(lines: tuple[str, ...], end: End) -> str:
    if end.code == REFUSED:
        return lines[0].removeprefix("ERROR! ")
    cause, place = causes.of_output(tuple(itertools.takewhile(lambda line: not line.startswith("usage:"), lines)))
    return f"{cause}\n{place}" if place else str(cause)


def _why_stopped(end: End) -> str:
    if end.stopped is Outcome.TIMED_OUT:
        return f"the run took longer than {duration.format(end.deadline or 0)} and was ended"
    return "the run was ended by the operator"


def _why_died(progress: Progress, end: End) -> str:
    if not end.signal:
        return f"{end.fault} {_where(progress)}"
    hint = "; the kernel does so when memory runs out" if end.signal == "SIGKILL" else ""
    return f"ansible-playbook was killed by {end.signal} {_where(progress)}{hint}"


def _where(progress: Progress) -> str:
    if not progress.tasks:
        return "before its first task"
    return f"during task {progress.task!r}" + (f" ({progress.path})" if progress.path else "")


def _failures(progress: Progress) -> tuple[TaskFailure, ...]:
    """Drop the failures that were rescued.

    Ansible does not mark them in the event, but counts both kinds per host in the recap. The failure that ends a host's
    play is the last, so the last `failures` of a host are those without a rescue. Without a recap, only a failure of
    the last task can have ended the run.
    """
    if progress.stats is None:
        return tuple(suspect.failure for suspect in progress.suspects if suspect.task == progress.tasks)
    data = _data(progress.stats)
    left = {
        (host, unreachable): count
        for name, unreachable in (("failures", False), ("dark", True))
        for host, count in (data.get(name) or {}).items()
    }
    failures = []
    for suspect in reversed(progress.suspects):
        counted = (suspect.host, suspect.unreachable)
        if left.get(counted, 0) > 0:
            left[counted] -= 1
            failures.append(suspect.failure)
    return tuple(reversed(failures))
