"""Conversion of objects to variables, in threads: large objects one at a time.

A large object needs half a second of CPU time. Several at once would delay the event loop, and with it leases and
probes, because threads share the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import orjson

T = TypeVar("T")

_LARGE = 64 * 1024
"""Bytes of JSON."""
_ONE: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Lock for large objects of each event loop."""


def is_large(obj: Mapping[str, Any]) -> bool:
    """Return True if an object of the API server waits for other large ones."""
    return len(orjson.dumps(obj)) > _LARGE


async def convert(function: Callable[..., T], *args: object, large: bool, **keywords: object) -> T:
    """Return the result of a function that converts an object."""
    one = _ONE.setdefault(asyncio.get_running_loop(), asyncio.Lock()) if large else nullcontext()
    async with one:
        return await asyncio.to_thread(function, *args, **keywords)
