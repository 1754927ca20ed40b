"""Masking of secret values in a run's events, result and files.

Promises:

- Names that the fold reads (hosts, actions, counters) are never masked.
- An event or file without a secret is returned as the same object.
- A task with `no_log` still reports where it failed.

ansible-core 2.19 and later show the message of such a task in spite of `no_log`. The message is passed on if the task's
arguments are known and masked in it; otherwise the whole message is masked. If a run read more secrets than can be
masked, or could not report its secret arguments, its output is withheld. So is a text that cannot be searched in time.
The event loop searches only for some milliseconds; the rest happens in threads. Must not import modules that start
processes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import orjson

from runner.core.engine.job import Event, RunResult
from runner.core.engine.run_secrets import NOT_REPORTED, RunSecrets
from runner.core.masking.masker import TOO_SLOW, Budget, SearchTimeoutError

T = TypeVar("T")

_LARGE = 1 << 16
"""Size of an event in bytes above which it is searched in a thread."""
_BRIEF, _LONG = 0.02, 5.0
"""Seconds of CPU time for a search on the event loop, and for the same search in a thread."""
_SEARCHES = ThreadPoolExecutor(2, "masking")
"""Few threads: each one that searches delays the event loop."""
UNREPORTED = "ansible_operator_no_log:"
"""Word in the warning of the callback that could not report arguments; same as in that callback. If a role prints it,
only its own output is withheld.
"""
_FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
_ERROR = re.compile(
    r"^\[ERROR\]: (?P<whole>(?:Task failed: )?(?P<message>.+?)(?=\nOrigin: |\n\n|\n<<< |\nfatal: |\nfailed: |\Z)"
    r".*?)(?=^fatal: |^failed: |\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Text of ansible-core 2.19 and later beside the result of a failed task, regardless of `no_log`."""
_COUNTERS = frozenset({"changed", "dark", "failures", "ignored", "ok", "processed", "rescued", "skipped"})
_NAMES = _COUNTERS | {
    *("host", "remote_addr", "task_action", "resolved_action", "ignore_errors", "is_conditional"),
    *("uuid", "playbook_uuid", "play_uuid", "task_uuid", "start", "end", "duration"),
}
"""Members of `event_data` that are never masked, because the fold or the coverage reads them."""
_PLACES = frozenset({"playbook", "play", "task", "task_path", "role"})
"""Further members that a withheld event keeps."""
_LONGEST_PERIOD = 32
"""Characters of a `requeue_after` that is passed on even if the event is withheld."""


async def events(shown: AsyncIterator[Event], secrets: RunSecrets) -> AsyncGenerator[Event]:
    """Yield the events without secrets. The run has reported the secret arguments of a result before its event."""
    async for event in shown:
        if UNREPORTED in str(event.get("stdout") or ""):
            secrets.exhaust(NOT_REPORTED)
        try:
            readable, dumped = event, dump(event)
        except RecursionError:
            readable = _withheld(event, secrets)
            dumped = dump(readable)
        yield await _redacted(_opened(readable, secrets), dumped, secrets)


async def result(run_result: RunResult, secrets: RunSecrets) -> RunResult:
    """Return a result without secrets."""
    if not secrets.masker:
        return run_result
    masker = secrets.masker

    def masked(budget: Budget) -> RunResult:
        failures = tuple(
            replace(failure, task=masker.value(failure.task, budget), message=masker.value(failure.message, budget))
            for failure in run_result.failures
        )
        return replace(run_result, message=masker.value(run_result.message, budget), failures=failures)

    try:
        return await _searched_in_time(masked)
    except SearchTimeoutError:
        failures = tuple(replace(failure, task=TOO_SLOW, message=TOO_SLOW) for failure in run_result.failures)
        return replace(run_result, message=run_result.message and TOO_SLOW, failures=failures)


def json_file(data: bytes, secrets: RunSecrets, budget: Budget, *, is_event: bool = False) -> bytes:
    """Return a file of JSON, such as an event, without secrets; the same object if it contains none.

    Raises:
        SearchTimeoutError: the budget does not suffice.
    """
    if not secrets.masker.finds(data, budget):
        return data
    try:
        value = json.loads(data)
        masks_event = is_event and isinstance(value, dict)
        masked = _masked(value, secrets, budget) if masks_event else secrets.masker.value(value, budget)
        return json.dumps(masked).encode()
    except (ValueError, RecursionError):
        return secrets.masker.data(data, budget)


async def _searched_in_time(search: Callable[[Budget], T], *, in_thread: bool = False) -> T:
    """Search on the event loop for a moment; if that does not suffice, in a thread.

    Raises:
        SearchTimeoutError: the time in the thread does not suffice either.
    """
    if not in_thread:
        try:
            return search(Budget(_BRIEF))
        except SearchTimeoutError:
            pass
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_SEARCHES, lambda: search(Budget(_LONG)))


def _is_censored(event: Event) -> bool:
    data = event.get("event_data")
    res = data.get("res") if isinstance(data, dict) else None
    return isinstance(res, dict) and "censored" in res


def _opened(event: Event, secrets: RunSecrets) -> Event:
    """Add the message that Ansible shows beside a censored failure to its result, or mask that message."""
    if event.get("event") not in _FAILURES or not _is_censored(event):
        return event
    match = _ERROR.search(str(event.get("stdout", "")))
    if match is None:
        return event
    data = event["event_data"]
    if not secrets.is_cleared(data.get("task_uuid")):
        secrets.learn([match["message"], match["whole"]])
        return event
    # The message is part of the event that was serialized, so the search of that covers it.
    return {**event, "event_data": {**data, "res": {**data["res"], "msg": match["message"]}}}


async def _redacted(event: Event, dumped: bytes, secrets: RunSecrets) -> Event:
    if not secrets.masker:
        return event
    try:
        return await _searched_in_time(
            lambda budget: _searched(event, dumped, secrets, budget), in_thread=len(dumped) > _LARGE
        )
    except SearchTimeoutError:
        return _withheld(event, secrets, TOO_SLOW)


def _searched(event: Event, dumped: bytes, secrets: RunSecrets, budget: Budget) -> Event:
    if not secrets.is_exhausted and not secrets.masker.finds(dumped, budget):
        return event
    return _masked(event, secrets, budget)


def _masked(event: Event, secrets: RunSecrets, budget: Budget) -> Event:
    if secrets.is_exhausted:
        return _withheld(event, secrets)
    mask = secrets.masker
    data = event.get("event_data")
    masked = {**event, "stdout": mask.value(str(event.get("stdout") or ""), budget)}
    try:
        if isinstance(data, dict):
            masked["event_data"] = {
                name: value if name in _NAMES else mask.value(value, budget) for name, value in data.items()
            }
    except RecursionError:
        return _withheld(event, secrets)
    return masked


def _withheld(event: Event, secrets: RunSecrets, reason: str = "") -> Event:
    """Return an event whose content may contain unknown secrets with only its place."""
    reason = reason or secrets.withheld
    data = event.get("event_data")
    data = data if isinstance(data, dict) else {}
    place = {name: value for name, value in data.items() if name in _NAMES}
    place |= {name: secrets.masker.text(str(value)) for name, value in data.items() if name in _PLACES}
    res = data.get("res")
    if isinstance(res, dict):
        period = res.get("period")
        is_period = isinstance(period, str) and len(period) <= _LONGEST_PERIOD
        fields = {"period": period, "done": res.get("done") is True} if is_period else {}
        place["res"] = {"msg": reason, **fields, **({"terminal": True} if res.get("terminal") is True else {})}
    stdout = str(event.get("stdout") or "")
    if stdout.strip():
        is_frame = str(event.get("event", "")).startswith("playbook_on_")
        stdout = secrets.masker.text(stdout) if is_frame else reason
    return {**event, "stdout": stdout, "event_data": place}


def dump(event: Event) -> bytes:
    """Return an event as JSON."""
    try:
        return orjson.dumps(event)
    except (TypeError, ValueError):  # numbers beyond 64 bits, invalid characters
        return json.dumps(event).encode()
