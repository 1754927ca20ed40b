"""Conversion of objects in threads."""

from __future__ import annotations

import asyncio
import threading

from runner.core.engine.params import convert, is_large


async def test_large_objects_are_converted_one_at_a_time_and_do_not_delay_small_ones() -> None:
    may_end, running, most = threading.Event(), 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        may_end.wait()
        running -= 1

    large = [asyncio.create_task(convert(work, large=True)) for _ in range(3)]
    assert await convert(lambda: "small", large=False) == "small"
    may_end.set()
    await asyncio.gather(*large)
    assert most == 1


def test_an_object_is_large_by_the_size_of_its_json() -> None:
    assert not is_large({"spec": {"a": 1}})
    assert is_large({"spec": {"a": [{}] * 30_000}})
