"""Keeps secret values out of what a run shows: its events, its result, and the files that are made of them.

Promises: names that a result is folded by (hosts, actions, counters) stay as they are; what shows nothing secret comes
back as it was given; a task with `no_log` still says where it failed. Its message, which ansible-core 2.19 and later
show all the same, is passed on when the task's arguments are known and masked in it, and is itself masked otherwise.
When a run read more than can be known, its output is withheld. Must not import: anything that runs something.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

import orjson

from runner.engine.job import Event, RunResult
from runner.engine.run_secrets import WITHHELD, RunSecrets

_LARGE = 1 << 16
"""Bytes of an event from which on it is searched in a thread."""
_FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
_ERROR = re.compile(r"^\[ERROR\]: (?:Task failed: )?(.+?)(?=\nOrigin: |\n\n|\n<<< |\nfatal: |\nfailed: |\Z)", re.DOTALL)
_COUNTERS = frozenset({"changed", "dark", "failures", "ignored", "ok", "processed", "rescued", "skipped"})
_NAMES = _COUNTERS | {
    *("host", "remote_addr", "task_action", "resolved_action", "ignore_errors"),
    *("uuid", "playbook_uuid", "play_uuid", "task_uuid", "start", "end", "duration"),
}
"""Members of `event_data` that are never masked: results are folded by them."""
_PLACES = frozenset({"playbook", "play", "task", "task_path", "role"})
"""Those that remain beside them of an event that is withheld."""
_LONGEST_PERIOD = 32
"""Characters of a `requeue_after` that is passed on even then."""


async def events(shown: AsyncIterator[Event], secrets: RunSecrets) -> AsyncGenerator[Event]:
    """Pass events on without secrets.

    The failure of a task with `no_log` waits for the next event: its arguments are told behind it.
    """
    held: Event | None = None
    async for event in shown:
        if held is not None:
            yield await _redacted(_opened(held, secrets), secrets)
            held = None
        if _is_censored_failure(event):
            held = event
        else:
            yield await _redacted(event, secrets)
    if held is not None:
        yield await _redacted(_opened(held, secrets), secrets)


def result(found: RunResult, secrets: RunSecrets) -> RunResult:
    """Return a result without secrets."""
    if not secrets.masker:
        return found
    masker = secrets.masker
    failures = tuple(
        replace(failure, task=masker.text(failure.task), message=masker.text(failure.message))
        for failure in found.failures
    )
    return replace(found, message=masker.text(found.message), failures=failures)


def event_file(data: bytes, secrets: RunSecrets) -> bytes:
    """Return the file of an event without secrets; the very same bytes when it holds none."""
    if not secrets.masker.finds(data):
        return data
    try:
        event = json.loads(data)
        return json.dumps(_masked(event, secrets)).encode() if isinstance(event, dict) else secrets.masker.data(data)
    except (ValueError, RecursionError):
        return secrets.masker.data(data)


def json_file(data: bytes, secrets: RunSecrets) -> bytes:
    """Return a file of JSON without secrets; the very same bytes when it holds none."""
    if not secrets.masker.finds(data):
        return data
    try:
        return json.dumps(secrets.masker.value(json.loads(data))).encode()
    except (ValueError, RecursionError):
        return secrets.masker.data(data)


def _is_censored_failure(event: Event) -> bool:
    if event.get("event") not in _FAILURES:
        return False
    data = event.get("event_data")
    res = data.get("res") if isinstance(data, dict) else None
    return isinstance(res, dict) and "censored" in res


def _opened(event: Event, secrets: RunSecrets) -> Event:
    """Give a censored failure the message that Ansible shows beside it, or keep that from being shown."""
    found = _ERROR.search(str(event.get("stdout", "")))
    if found is None:
        return event
    data = event["event_data"]
    if not secrets.is_cleared(data.get("task_uuid")):
        secrets.learn([found[1]])
        return event
    return {**event, "event_data": {**data, "res": {**data["res"], "msg": found[1]}}}


async def _redacted(event: Event, secrets: RunSecrets) -> Event:
    if not secrets.masker:
        return event
    dumped = _dump(event)
    if len(dumped) > _LARGE:
        return await asyncio.to_thread(_searched, event, dumped, secrets)
    return _searched(event, dumped, secrets)


def _searched(event: Event, dumped: bytes, secrets: RunSecrets) -> Event:
    if not secrets.is_exhausted and not secrets.masker.finds(dumped):
        return event
    secrets.has_found = True
    return _masked(event, secrets)


def _masked(event: Event, secrets: RunSecrets) -> Event:
    if secrets.is_exhausted:
        return _withheld(event, secrets)
    mask = secrets.masker
    data = event.get("event_data")
    masked = {**event, "stdout": mask.text(str(event.get("stdout") or ""))}
    try:
        if isinstance(data, dict):
            masked["event_data"] = {
                name: value if name in _NAMES else mask.value(value) for name, value in data.items()
            }
    except RecursionError:
        return _withheld(event, secrets)
    return masked


def _withheld(event: Event, secrets: RunSecrets) -> Event:
    """What is left of an event whose content cannot be vouched for: where it happened, not what."""
    data = event.get("event_data")
    data = data if isinstance(data, dict) else {}
    kept = {name: value for name, value in data.items() if name in _NAMES}
    kept |= {name: secrets.masker.text(str(value)) for name, value in data.items() if name in _PLACES}
    res = data.get("res")
    if isinstance(res, dict):
        period = res.get("period")
        is_period = isinstance(period, str) and len(period) <= _LONGEST_PERIOD
        kept["res"] = {"msg": WITHHELD, **({"period": period} if is_period else {})}
    stdout = str(event.get("stdout") or "")
    if stdout.strip():
        is_frame = str(event.get("event", "")).startswith("playbook_on_")
        stdout = secrets.masker.text(stdout) if is_frame else WITHHELD
    return {**event, "stdout": stdout, "event_data": kept}


def _dump(event: Event) -> bytes:
    try:
        return orjson.dumps(event)
    except (TypeError, ValueError):  # numbers beyond 64 bits, characters that are none
        return json.dumps(event).encode()
