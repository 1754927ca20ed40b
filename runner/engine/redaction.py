"""Masking of secret values in a run's events, result and files.

Promises:

- Names that the fold reads (hosts, actions, counters) are never masked.
- An event or file without a secret is returned as the same object.
- A task with `no_log` still reports where it failed.

ansible-core 2.19 and later show the message of such a task in spite of `no_log`. The message is passed on if the task's
arguments are known and masked in it; otherwise the whole message is masked. If a run read more secrets than can be
masked, its output is withheld. Must not import modules that start processes.
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
"""Size of an event in bytes above which it is searched in a thread."""
_FAILURES = frozenset({"runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"})
_RESULTS = _FAILURES | {"runner_on_ok", "runner_item_on_ok", "runner_retry"}
_ITEMS = frozenset({"runner_item_on_ok", "runner_item_on_failed"})
_TELLING = (b"pass", b"pwd", b"secret", b"token", b"credential", b"_key", b"apikey")
_TOLD_WITHIN = 1.0
"""Seconds that a result waits at most, so that long loops still show progress."""
_ERROR = re.compile(
    r"^\[ERROR\]: (?P<whole>(?:Task failed: )?(?P<message>.+?)(?=\nOrigin: |\n\n|\n<<< |\nfatal: |\nfailed: |\Z)"
    r".*?)(?=^fatal: |^failed: |\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Text of ansible-core 2.19 and later beside the result of a failed task, regardless of `no_log`."""
_COUNTERS = frozenset({"changed", "dark", "failures", "ignored", "ok", "processed", "rescued", "skipped"})
_NAMES = _COUNTERS | {
    *("host", "remote_addr", "task_action", "resolved_action", "ignore_errors"),
    *("uuid", "playbook_uuid", "play_uuid", "task_uuid", "start", "end", "duration"),
}
"""Members of `event_data` that are never masked, because the fold reads them."""
_PLACES = frozenset({"playbook", "play", "task", "task_path", "role"})
"""Further members that a withheld event keeps."""
_LONGEST_PERIOD = 32
"""Characters of a `requeue_after` that is passed on even if the event is withheld."""


async def events(shown: AsyncIterator[Event], secrets: RunSecrets) -> AsyncGenerator[Event]:
    """Yield the events without secrets.

    A result that may show secret arguments waits for the next event, because the callback sends the arguments just
    after it.
    """
    upcoming: asyncio.Future[Event | None] | None = None
    try:
        event = await anext(shown, None)
        while event is not None:
            following = None
            try:
                dumped = _dump(event)
            except RecursionError:
                event = _withheld(event, secrets)
                dumped = _dump(event)
            if _may_show_arguments(event, dumped):
                following = upcoming = asyncio.ensure_future(anext(shown, None))
                await asyncio.wait({upcoming}, timeout=_TOLD_WITHIN)
                event = _opened(event, secrets)
            yield await _redacted(event, dumped, secrets)
            event = await (following or anext(shown, None))
    finally:
        if upcoming is not None:
            upcoming.cancel()


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
    """Return the file of an event without secrets; the same object if it contains none."""
    if not secrets.masker.finds(data):
        return data
    try:
        event = json.loads(data)
        return json.dumps(_masked(event, secrets)).encode() if isinstance(event, dict) else secrets.masker.data(data)
    except (ValueError, RecursionError):
        return secrets.masker.data(data)


def json_file(data: bytes, secrets: RunSecrets) -> bytes:
    """Return a file of JSON without secrets; the same object if it contains none."""
    if not secrets.masker.finds(data):
        return data
    try:
        return json.dumps(secrets.masker.value(json.loads(data))).encode()
    except (ValueError, RecursionError):
        return secrets.masker.data(data)


def _may_show_arguments(event: Event, dumped: bytes) -> bool:
    """Return True if a result is censored, has an item, or contains a name that indicates a secret."""
    name = event.get("event")
    if name not in _RESULTS:
        return False
    if name in _ITEMS or _is_censored(event):
        return True
    lower = dumped.lower()
    return any(word in lower for word in _TELLING)


def _is_censored(event: Event) -> bool:
    data = event.get("event_data")
    res = data.get("res") if isinstance(data, dict) else None
    return isinstance(res, dict) and "censored" in res


def _opened(event: Event, secrets: RunSecrets) -> Event:
    """Add the message that Ansible shows beside a censored failure to its result, or mask that message."""
    if event["event"] not in _FAILURES or not _is_censored(event):
        return event
    found = _ERROR.search(str(event.get("stdout", "")))
    if found is None:
        return event
    data = event["event_data"]
    if not secrets.is_cleared(data.get("task_uuid")):
        secrets.learn([found["message"], found["whole"]])
        return event
    # The message is part of the event that was serialized, so the search of that covers it.
    return {**event, "event_data": {**data, "res": {**data["res"], "msg": found["message"]}}}


async def _redacted(event: Event, dumped: bytes, secrets: RunSecrets) -> Event:
    if not secrets.masker:
        return event
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
    """Return an event whose content may contain unknown secrets with only its place."""
    data = event.get("event_data")
    data = data if isinstance(data, dict) else {}
    kept = {name: value for name, value in data.items() if name in _NAMES}
    kept |= {name: secrets.masker.text(str(value)) for name, value in data.items() if name in _PLACES}
    res = data.get("res")
    if isinstance(res, dict):
        period = res.get("period")
        is_period = isinstance(period, str) and len(period) <= _LONGEST_PERIOD
        asked = {"period": period, "done": res.get("done") is True} if is_period else {}
        kept["res"] = {"msg": WITHHELD, **asked}
    stdout = str(event.get("stdout") or "")
    if stdout.strip():
        is_frame = str(event.get("event", "")).startswith("playbook_on_")
        stdout = secrets.masker.text(stdout) if is_frame else WITHHELD
    return {**event, "stdout": stdout, "event_data": kept}


def _dump(event: Event) -> bytes:
    try:
        return orjson.dumps(event)
    except (TypeError, ValueError):  # numbers beyond 64 bits, invalid characters
        return json.dumps(event).encode()
