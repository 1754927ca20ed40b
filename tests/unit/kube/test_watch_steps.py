"""What follows each end of a step of a watcher."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.kube.watch_events import From, Next, Page, Position, ServerTraits, Start, StepEnd, next_step
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
INVALID = InvalidError("a field is invalid", status=422)
BAD_REQUEST = ApiError("bad", status=400)
REFUSED_VERSION = (INVALID, BAD_REQUEST)
OTHERS = (
    BROKEN,
    ForbiddenError("no", status=403),
    ThrottledError("slowly", status=429, retry_after=2.0),
    ServerError("etcd", status=500),
)
SERVER = ServerTraits()
WITH_BOOKMARKS = ServerTraits(sends_bookmarks=True)


def end(error: ApiError | ApiUnavailableError | None, at: Position = FROM, *, in_discovery: bool = False) -> StepEnd:
    return StepEnd(at, error, in_discovery=in_discovery)


SILENT = replace(end(BROKEN), was_silent=True)


@pytest.mark.parametrize(
    ("ended", "server", "expected"),
    [
        *((end(None, at), SERVER, (Next.CONTINUE, at)) for at in POSITIONS),
        *((end(NO_KIND, at, in_discovery=True), SERVER, (Next.WAIT_FOR_KIND, START)) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.REDISCOVER, START)) for error in (NO_KIND, NOT_FOUND) for at in POSITIONS),
        *((end(NOT_FOUND, at), ServerTraits(not_found=3), (Next.RETRY, START)) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.RELIST, START)) for error in (GONE, TOO_LARGE) for at in POSITIONS),
        *((end(error, at), SERVER, (Next.RETRY, START)) for error in OTHERS for at in (START, PAGE)),
        *((end(error, at), SERVER, (Next.RETRY, START)) for error in REFUSED_VERSION for at in POSITIONS),
        (end(BAD_REQUEST, FROM, in_discovery=True), SERVER, (Next.RETRY, FROM)),
        *((end(error), server, (Next.RETRY, FROM)) for error in OTHERS for server in (SERVER, WITH_BOOKMARKS)),
        (end(BROKEN, FROM, in_discovery=True), SERVER, (Next.RETRY, FROM)),
        (SILENT, SERVER, (Next.CONTINUE, FROM)),
        (SILENT, WITH_BOOKMARKS, (Next.RELIST, START)),
    ],
)
def test_the_end_of_a_step_decides_what_follows_and_where(
    ended: StepEnd, server: ServerTraits, expected: tuple[Next, Position]
) -> None:
    assert next_step(ended, server) == expected


def test_one_bookmark_shows_that_the_server_sends_bookmarks() -> None:
    server = ServerTraits().after(end(None))
    assert not server.sends_bookmarks
    server = server.after(replace(end(BROKEN), has_bookmarks=True)).after(end(None))
    assert server.sends_bookmarks


def test_consecutive_404_of_a_served_kind_are_counted() -> None:
    server = ServerTraits()
    for ended, expected in (
        (end(NOT_FOUND), 1),
        (end(NO_KIND, in_discovery=True), 1),
        (end(BROKEN), 1),
        (end(NO_KIND), 2),
        (replace(end(NOT_FOUND), was_accepted=True), 1),
        (replace(end(None), was_accepted=True), 0),
    ):
        server = server.after(ended)
        assert server.not_found == expected
