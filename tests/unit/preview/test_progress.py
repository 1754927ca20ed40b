"""What a user sees while `plan` works."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from runner.sdk.preview.progress import Progress
from runner.values.objects import GVK, ObjectKey, ObjectRef

SHOP = ObjectRef(GVK("example.com", "v1", "Shop"), ObjectKey("town", "s1"))


@pytest.mark.parametrize(
    ("counts", "task", "line"),
    [
        ((0, 0), "", "3 s: planning; reading the cluster"),
        ((0, 1), "", "3 s: planning; starting Ansible"),
        ((0, 1), "Create", "3 s: planning; Shop town/s1: Create"),
        ((2, 21), "Create", "3 s: planned 2 of 21 resources; Shop town/s1: Create"),
        ((0, 1), "a\n\x1b[2Jb", r"3 s: planning; Shop town/s1: a \x1b[2Jb"),
    ],
)
def test_the_line_names_the_count_and_the_task(counts: tuple[int, int], task: str, line: str) -> None:
    progress = Progress()
    progress.count(*counts)
    if task:
        progress.start(SHOP, task)
    assert progress.line(3.2) == line


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("is_terminal", "seconds", "lines"), [(True, 1.9, 0), (True, 2.6, 2), (False, 9.0, 0), (False, 21.0, 2)]
)
async def test_a_line_is_shown_from_two_seconds_on_or_each_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, seconds: float, lines: int, *, is_terminal: bool
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "31")
    shown = asyncio.ensure_future(Progress().show())
    await asyncio.sleep(seconds)
    shown.cancel()
    await asyncio.wait([shown])
    written = stream.getvalue()
    assert written.count("planning; reading the clu") == lines
    assert written.endswith("\r\x1b[K") is is_terminal
    assert ("cluster\n" in written) is bool(lines and not is_terminal)
