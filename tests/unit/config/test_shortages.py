"""What the machine is short of is known from other errors, and what must not be left undone outlasts it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.base.config import shortages
from tests.kit.shortage import no_descriptor_left

_FULL = OSError(errno.EMFILE, "Too many open files")


def _made_from(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except OSError as error:
            raise RuntimeError("no connection") from error
    except RuntimeError as error:
        return error


def _raised_beside(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except OSError:
            raise RuntimeError("no connection")  # noqa: B904 - what is tested
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [_FULL, _made_from(_FULL), _raised_beside(_FULL), ExceptionGroup("two", [_FULL, _made_from(_FULL)])],
    ids=["itself", "a cause", "a context", "all of a group"],
)
def test_a_shortage_is_found_as_the_cause_of_another_error(error: Exception) -> None:
    found = shortages.of(error)
    assert found is not None
    assert found.errno == errno.EMFILE


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        ValueError("x"),
        ExceptionGroup("two", [_FULL, ValueError("x")]),
        None,
    ],
    ids=["another error of the system", "another error", "one of a group", "none"],
)
def test_an_error_with_another_cause_is_not_a_shortage(error: Exception | None) -> None:
    assert shortages.of(error) is None


def _failing(times: int, number: int) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def work() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise OSError(number, os.strerror(number))
        return "done"

    return work, calls


async def test_work_continues_as_soon_as_the_shortage_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortages, "_RETRY_INTERVAL", 0)
    work, calls = _failing(3, errno.EMFILE)
    assert await shortages.outlast(work) == "done"
    assert len(calls) == 4


async def test_a_shortage_that_does_not_end_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortages, "_RETRY_TIME", 0)
    monkeypatch.setattr(shortages, "_RETRY_INTERVAL", 0)
    work, _ = _failing(1 << 30, errno.ENFILE)
    with pytest.raises(OSError, match="Too many open files in system"):
        await shortages.outlast(work)


async def test_a_full_disk_is_not_retried() -> None:
    work, calls = _failing(1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        await shortages.outlast(work)
    assert len(calls) == 1


async def test_canceling_ends_the_waiting() -> None:
    work, calls = _failing(1 << 30, errno.EMFILE)
    waiting = asyncio.create_task(shortages.outlast(work))
    while not calls:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_the_check_for_descriptors_raises_if_too_few_are_free_and_keeps_none_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with no_descriptor_left(spare=3), pytest.raises(OSError, match="Too many open files"):
        shortages.check_descriptors(4)
    with no_descriptor_left(spare=4):
        shortages.check_descriptors(4)
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)
