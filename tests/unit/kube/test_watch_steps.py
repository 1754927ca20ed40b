"""What follows each end of a step of a watcher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.kube.watch_steps import From, Next, Page, Phase, Position, ServerTraits, Start, StepEnd, next_step
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KindNotFoundError,
    NotFoundError,
    ServerError,
    ThrottledError,
)

START, PAGE, FROM = Start(), Page("/widgets", "more", 50), From("/widgets", "7")
POSITIONS: tuple[Position, ...] = (START, PAGE, FROM)
GONE = GoneError("expired", status=410)
TOO_LARGE = ServerError("Too large resource version: 9, current: 4", status=504)
NO_KIND = KindNotFoundError("not served")
NOT_FOUND = NotFoundError("not found", status=404)
BROKEN = ApiUnavailableError("reset")
INVALID = InvalidError("sendInitialEvents is forbidden", status=422)
BAD_REQUEST = ApiError("bad", status=400)
OTHERS = (
    BROKEN,
    INVALID,
    BAD_REQUEST,
    ForbiddenError("no", status=403),
    ThrottledError("slowly", status=429, retry_after=2.0),
    ServerError("etcd", status=500),
)
SERVER = ServerTraits()
WITH_BOOKMARKS = ServerTraits(sends_bookmarks=True)


def end(error: ApiError | ApiUnavailableError | None, at: Position = FROM, phase: Phase = Phase.WATCH) -> StepEnd:
    return StepEnd(phase, at, error)


SILENT = replace(end(BROKEN), was_silent=True)


@pytest.mark.parametrize(
    ("ended", "server", "expected"),
    [
        *((end(None, at), SERVER, (Next.CONTINUE, at)) for at in POSITIONS),
        *((end(NO_KIND, at, Phase.DISCOVERY), SERVER, (Next.WAIT_FOR_KIND, START)) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.REDISCOVER, START)) for error in (NO_KIND, NOT_FOUND) for at in POSITIONS),
        *((end(NOT_FOUND, at), ServerTraits(not_found=3), (Next.RETRY, START)) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.RELIST, START)) for error in (GONE, TOO_LARGE) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.RETRY, START)) for error in OTHERS for at in (START, PAGE)),
        *((end(error), server, (Next.RETRY, FROM)) for error in OTHERS for server in (SERVER, WITH_BOOKMARKS)),
        (end(BROKEN, FROM, Phase.DISCOVERY), SERVER, (Next.RETRY, FROM)),
        (SILENT, SERVER, (Next.CONTINUE, FROM)),
        (SILENT, WITH_BOOKMARKS, (Next.RELIST, START)),
        (replace(SILENT, position=START, phase=Phase.STREAMED_LIST), SERVER, (Next.RETRY, START)),
    ],
)
def test_the_end_of_a_step_decides_what_follows_and_where(
    ended: StepEnd, server: ServerTraits, expected: tuple[Next, Position]
) -> None:
    assert next_step(ended, server) == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([end(INVALID, START, Phase.STREAMED_LIST)], False),
        ([end(BAD_REQUEST, START, Phase.STREAMED_LIST)], False),
        ([end(BROKEN, START, Phase.STREAMED_LIST)] * 5, True),
        ([replace(end(BROKEN, START, Phase.STREAMED_LIST), was_accepted=True)], True),
        ([replace(end(BROKEN, START, Phase.STREAMED_LIST), was_accepted=True)] * 2, False),
        ([replace(end(BROKEN, START, Phase.STREAMED_LIST), was_accepted=True), end(BROKEN)] * 2, True),
        ([end(INVALID), end(BAD_REQUEST)], True),
    ],
)
def test_lists_are_streamed_until_the_server_refuses_them_or_breaks_two(ends: list[StepEnd], *, expected: bool) -> None:
    server = ServerTraits()
    for ended in ends:
        server = server.after(ended)
    assert server.streams_lists is expected


def test_one_bookmark_shows_that_the_server_sends_bookmarks() -> None:
    server = ServerTraits().after(end(None))
    assert not server.sends_bookmarks
    server = server.after(replace(end(BROKEN), has_bookmarks=True)).after(end(None))
    assert server.sends_bookmarks


def test_consecutive_404_of_a_served_kind_are_counted() -> None:
    server = ServerTraits()
    for ended, expected in (
        (end(NOT_FOUND), 1),
        (end(NO_KIND, phase=Phase.DISCOVERY), 1),
        (end(BROKEN), 1),
        (end(NO_KIND), 2),
        (replace(end(NOT_FOUND), was_accepted=True), 1),
        (replace(end(None), was_accepted=True), 0),
    ):
        server = server.after(ended)
        assert server.not_found == expected
