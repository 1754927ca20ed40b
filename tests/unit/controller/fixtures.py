"""Threads of controllers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions at once that otherwise need a thread: virtual time does not wait for threads."""

    async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    monkeypatch.setattr(asyncio, "to_thread", call)
