"""JSON of the API server as Python values, with a limit on nesting.

The API server accepts objects that nest 10,000 levels deep. orjson reads 1,024 levels and writes 254. Other code that
walks an object is recursive. Therefore `loads` replaces values below `MAX_DEPTH` levels by `TOO_DEEP`. Such an object
keeps its metadata and is cached like any other; `excess` reports it. No object can stop a watch.

An object of a megabyte can contain half a million values, which need seconds in Python. `MOST_VALUES` bounds what is
converted. Patterns here need linear time and memory for every input.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from runner.agent.bounds import exceeds

MAX_DEPTH = 200
"""Levels of maps and lists in one object."""
TOO_DEEP = "\x00nested too deeply\x00"
"""Replaces a map or list below `MAX_DEPTH` levels."""

MOST_VALUES = 100_000
"""Values of an object that a run receives, or of one that a run writes."""
_HEADROOM = 50
"""Levels that other code may wrap around an object before orjson refuses to write it."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_REPLACEMENT = orjson.dumps(TOO_DEEP)


def loads(raw: bytes) -> Any:
    """Read JSON; at most `MAX_DEPTH` levels of each value are kept.

    Raises:
        orjson.JSONDecodeError: `raw` is not JSON.
    """
    return loads_marked(raw)[0]


def loads_marked(raw: bytes) -> tuple[Any, bool]:
    """Read JSON like `loads`; also return whether all levels are kept. Raises orjson.JSONDecodeError."""
    is_complete = True
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        cut = _cut_text(raw)
        if cut is None:
            raise
        value, is_complete = orjson.loads(cut), False
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH or _is_shallow(value):
        return value, is_complete
    return _cut(value, MAX_DEPTH), False


def excess(text: bytes) -> str:
    """Return why a run cannot receive an object, as a sentence; empty if it can. `text` is its JSON from orjson."""
    if _REPLACEMENT in text:
        return f"the object nests deeper than {MAX_DEPTH} levels, so a run cannot receive it; flatten it"
    if exceeds(text, MOST_VALUES):
        return f"the object has more than {MOST_VALUES} values, so a run cannot receive it; divide it"
    return ""


def _is_shallow(value: Any) -> bool:
    for _ in range(_HEADROOM):
        value = [value]
    try:
        orjson.dumps(value)
    except TypeError:  # orjson.JSONEncodeError: more than 254 levels
        return False
    return True


def _cut(value: Any, levels: int) -> Any:
    if not isinstance(value, dict | list) or not value:
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [_cut(item, levels - 1) for item in value]
    return {key: _cut(item, levels - 1) for key, item in value.items()}


def _cut_text(raw: bytes) -> bytes | None:
    """Replace values below the limit in JSON that orjson does not read; None if there are none."""
    chunks: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(raw):
        text = token[0]
        if text in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                chunks.append(raw[start : token.start()])
        elif text in b"]}":
            depth -= 1
            if depth == MAX_DEPTH:
                chunks.append(_REPLACEMENT)
                start = token.end()
    return b"".join([*chunks, raw[start:]]) if chunks else None
