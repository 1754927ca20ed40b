"""Coverage of a run: started tasks, tasks because of which other tasks may not run, and times of handlers.

It comes from the run's events. Only operators with a watch that has `prune` record it. Ansible reports skipped tasks,
but no tasks of a skipped include, and none after the end of a play.
"""

from __future__ import annotations

import hashlib
import shlex
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.base.config import paths
from runner.core.engine.events import TASK_STARTS, moment
from runner.core.engine.job import Event
from runner.values.objects import mapping

_PREFIXES = ("", "ansible.builtin.", "ansible.legacy.")
_INCLUDES = frozenset(prefix + name for prefix in _PREFIXES for name in ("include", "include_tasks", "include_role"))
_METAS = frozenset(f"{prefix}meta" for prefix in _PREFIXES)
_SKIPPED = frozenset({"runner_on_skipped", "runner_item_on_skipped"})
_FAILED = frozenset({"runner_on_failed", "runner_on_unreachable"})
_ENDED = frozenset({"runner_on_ok", "runner_item_on_ok"})
_SUCCESSES = 200, 400
"""Status codes of HTTP."""
_NO_HOSTS = frozenset({"playbook_on_no_hosts_matched", "playbook_on_no_hosts_remaining"})
_DIGEST_SIZE = 6


@dataclass(frozen=True, slots=True)
class Omission:
    """A task that hides what other tasks use: a skipped include, the end of a play, a failure, a read of nothing."""

    task: str
    """Digest of the task."""
    what: str
    """What happened to which task, with file and line; the end of a sentence."""
    started: int
    """Number of tasks that had started."""
    failed: bool = False
    """Whether it has no result, on which later tasks can depend, although they run."""
    rescued: bool = False
    """Whether it is a failure that was not ignored."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a run that has ended."""

    omissions: tuple[Omission, ...] = ()
    handlers: tuple[tuple[float, float], ...] = ()
    """Begin and end of each handler, in seconds since the epoch."""
    times: tuple[float, ...] = ()
    """Times at which tasks started, in seconds since the epoch."""
    tasks: tuple[str, ...] = ()
    """Digests of these tasks."""
    paths: frozenset[str] = frozenset()
    """Their places, as `file:line`."""
    censored: frozenset[str] = frozenset()
    """Places of the tasks that succeeded, and whose results `no_log` hides."""
    is_serial: bool = True
    """False if requests can belong to another task than the current one: tasks on several hosts, or with `async`."""

    @property
    def omitting(self) -> tuple[str, ...]:
        """Digests of the tasks because of which other tasks did not run. Sorted, with repetitions."""
        return tuple(sorted(omission.task for omission in self.omissions))

    @property
    def rescued(self) -> Omission | None:
        """The first failure that was not ignored. If the run succeeded, it was rescued."""
        return next((omission for omission in self.omissions if omission.rescued), None)

    def reached(self, omitting: Collection[str]) -> frozenset[str]:
        """Return the started tasks on which these omissions have no effect."""
        failures = (omission.started for omission in self.omissions if omission.failed and omission.task in omitting)
        return frozenset(self.tasks[: min(failures, default=None)])

    def tasks_at(self, times: Iterable[float]) -> frozenset[str]:
        """Return the tasks that sent requests at these times; empty if this is not certain."""
        positions = {bisect_right(self.times, time) - 1 for time in times}
        return (
            frozenset(self.tasks[at] for at in positions)
            if self.is_serial and min(positions, default=-1) >= 0
            else frozenset()
        )


class CoverageRecorder:
    """Records the coverage of one run."""

    def __init__(self) -> None:
        self._omissions: list[Omission] = []
        self._times: list[float] = []
        self._tasks: list[str] = []
        self._paths: set[str] = set()
        self._censored: set[str] = set()
        self._hosts: set[str] = set()
        self._is_async = False
        self._handlers: list[tuple[float, float]] = []
        self._handler = 0.0
        """Start of the current task if it is a handler; 0 if it is none."""
        self._meta: Mapping[str, Any] | None = None
        """Data of the current task if it is a `meta` task that was not skipped."""
        self._metas: dict[int, Mapping[str, Any]] = {}
        """Data of the `meta` tasks of the current play, by the number of tasks that had started."""
        self._last: dict[str, int] = {}
        """Number of tasks that had started at the last event of each host of the current play."""
        self._play: object = None

    def event(self, event: Event) -> None:
        """Process an event of ansible-runner."""
        kind, data = event.get("event"), event.get("event_data")
        data = data if isinstance(data, dict) else {}
        if kind in TASK_STARTS:
            self._end_task(event, data)
            self._times.append(moment(event))
            self._tasks.append(_digest(data))
            self._paths.add(str(data.get("task_path") or ""))
            self._meta = data if data.get("task_action") in _METAS else None
            self._handler = moment(event) if data.get("is_conditional") is True else 0.0
        elif kind == "playbook_on_stats":
            self._end_task(event, None)
        elif kind in _SKIPPED:
            self._meta = None
            if data.get("task_action") in _INCLUDES:
                self._omit(data, "the include {} was skipped")
        elif kind in _FAILED and data.get("ignore_errors"):
            self._omit(data, "a failure of the task {} was ignored", failed=True)
        elif kind in _FAILED:
            self._omit(data, "a failure of the task {} was rescued", "rescued", failed=True, rescued=True)
        elif kind in _ENDED and "censored" in mapping(data.get("res")):
            self._censored.add(str(data.get("task_path") or ""))
        elif kind in _ENDED and (how := _hidden_failure(data.get("res"))):
            self._omit(data, how, how, failed=True)
        elif kind in _NO_HOSTS:
            self._omit({"task": data.get("play"), "task_action": kind}, "the play {} had no hosts")
        self._note_host(data)

    def result(self) -> Coverage:
        """Return the coverage so far."""
        return Coverage(
            tuple(self._omissions),
            tuple(self._handlers),
            tuple(self._times),
            tuple(self._tasks),
            frozenset(self._paths),
            frozenset(self._censored),
            is_serial=not self._is_async and len(self._hosts) <= 1 and self._times == sorted(self._times),
        )

    def _note_host(self, data: Mapping[str, Any]) -> None:
        result = data.get("res")
        if isinstance(result, dict) and "ansible_job_id" in result:
            self._is_async = True
        if isinstance(host := data.get("host"), str):
            self._hosts.add(host)
            self._last[host] = len(self._tasks)

    def _end_task(self, event: Event, following: Mapping[str, Any] | None) -> None:
        """End the current task. A `meta` task ended its play or role if no task of the same play and role follows."""
        meta = self._meta
        if meta is not None and (
            following is None or any(meta.get(name) != following.get(name) for name in ("play_uuid", "role"))
        ):
            self._omit(meta, "the task {} ended its play or role")
        if self._handler:
            self._handlers.append((self._handler, moment(event)))
        self._meta, self._handler = None, 0.0
        if following is None or following.get("play_uuid") != self._play:
            self._end_play()
            self._play = (following or {}).get("play_uuid")
        if following is not None and following.get("task_action") in _METAS:
            self._metas[len(self._tasks) + 1] = following

    def _end_play(self) -> None:
        """Note `meta` tasks that ended the play for some of its hosts: no event of these follows."""
        for number, meta in self._metas.items():
            ended = sorted(host for host, last in self._last.items() if last < number)
            if ended and max(self._last.values()) > number:
                self._omit(meta, "the task {} ended the play of a host", *ended)
        self._metas.clear()
        self._last.clear()

    def _omit(
        self, data: Mapping[str, Any], what: str, *more: str, failed: bool = False, rescued: bool = False
    ) -> None:
        """Note a task because of which further tasks may not run, or have no result to depend on."""
        name, path = str(data.get("task") or ""), str(data.get("task_path") or "")
        where = what.format(repr(name)) + (f" ({path})" if path else "")
        self._omissions.append(Omission(_digest(data, *more), where, len(self._tasks), failed, rescued))


def _hidden_failure(result: object) -> str:
    """Return how a task hides that it read nothing, as the text of an omission; empty if it does not."""
    if not isinstance(result, Mapping):
        return ""
    if result.get("api_found") is False:
        return "the API server did not serve the kind that the task {} reads"
    if result.get("failed_when_result") is not False:
        return ""
    code, status = result.get("rc"), result.get("status")
    if isinstance(code, int):
        has_failed = code != 0
    elif isinstance(status, int):
        has_failed = not _SUCCESSES[0] <= status < _SUCCESSES[1]
    else:
        has_failed = bool(result.get("msg"))
    return "failed_when hid a failure of the task {}" if has_failed or result.get("exception") else ""


def _digest(data: Mapping[str, Any], *more: str) -> str:
    """Return the digest of a task. Its line is ignored, because edits change it."""
    file = str(data.get("task_path") or "").rpartition(":")[0]
    text = "\0".join((file, str(data.get("task") or ""), str(data.get("task_action") or ""), *more))
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=_DIGEST_SIZE).hexdigest()


_SELECTING = (
    "--tags",
    "--skip-tags",
    "--start-at-task",
    "--limit",
    "--check",
    "--syntax-check",
    "--step",
    "--list-tasks",
    "--list-tags",
    "--list-hosts",
)
_SELECTING_SHORT = frozenset("tlC")


def tasks_are_selected(ansible_args: str, environ: Mapping[str, str], cwd: Path) -> str:
    """Return which option makes Ansible execute only some tasks or hosts; empty if none does."""
    try:
        arguments: Sequence[str] = shlex.split(ansible_args)
    except ValueError:
        arguments = ansible_args.split()
    for argument in arguments:
        name = argument.partition("=")[0]
        is_long = len(name) > len("--") and any(option.startswith(name) for option in _SELECTING)
        is_short = name.startswith("-") and not name.startswith("--") and not _SELECTING_SHORT.isdisjoint(name)
        if is_long or is_short:
            return f"--ansible-args contains {argument}"
    for name in ("ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS"):
        if environ.get(name):
            return f"environment variable {name}"
    return _selecting_config(environ, cwd)


def _selecting_config(environ: Mapping[str, str], cwd: Path) -> str:
    config = next((path for path in paths.ansible_configs(environ, cwd) if path.is_file()), None)
    parser = ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        parser.read_string(config.read_text(encoding="utf-8", errors="replace") if config else "")
    except (ConfigParserError, OSError):
        return ""  # Ansible reports an invalid file itself
    if any(parser.get("tags", name, fallback="") for name in ("run", "skip")):
        return f"section [tags] of {config}"
    return ""
