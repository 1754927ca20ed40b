"""Requests at the start of the operator, which wait for the API server, and the release of the leader lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from runner.base import log
from runner.core.kube import answers
from runner.core.kube.client import Client
from runner.core.kube.meaning import Follow, Request, follow
from runner.values.backoff import JitteredBackoff
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, UnauthorizedError
from runner.values.objects import Object

T = TypeVar("T")

_log = log.get(__name__)

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 15.0


async def connect(client: Client, stop: asyncio.Event, note: Callable[[str], None]) -> Object | None:
    """Return the API server's version when it responds; None if `stop` is set first."""
    return await until_answered(Request.START, client, lambda: client.request("GET", "/version"), stop, note)


async def until_answered(
    kind: Request, client: Client, send: Callable[[], Awaitable[T]], stop: asyncio.Event, note: Callable[[str], None]
) -> T | None:
    """Return the result of `send`, which sends requests of a kind, when the API server answers them.

    Return None if `stop` is set first. `note` receives the reason while the operator waits.

    Raises:
        ApiError: an answer after which the kind is not repeated.
    """
    backoff = JitteredBackoff(_FIRST_DELAY, _LONGEST_DELAY)
    while not stop.is_set():
        try:
            return await send()
        except (ApiError, ApiUnavailableError) as error:
            if follow(kind, error) is not Follow.REPEAT:
                raise
            delay = backoff.next()
            event, advice = _explained(error)
            note(f"{event}: {error}")
            _log.warning(
                f"{event}; retrying",
                url=client.credentials.base_url,
                credentials=client.credentials.origin,
                error=str(error),
                advice=advice,
                seconds=round(delay, 1),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await stop.wait()
    return None


def _explained(error: ApiError | ApiUnavailableError) -> tuple[str, str]:
    """Return the event and the next step."""
    if isinstance(error, UnauthorizedError):
        return (
            "The API server rejects the credentials",
            "renew the credentials, or select others with --kubeconfig, --context or KUBECONFIG",
        )
    if isinstance(error, ApiError):
        needs = "; the operator needs GET on /version" if isinstance(error, ForbiddenError) else ""
        return "The API server responds with an error", f"see the error{needs}"
    return "Cannot reach the API server", answers.advice(error.__cause__)


_LEASE_GRACE = 5.0
"""Seconds to release the leader lease."""


async def release_lease(renewing: asyncio.Task[None]) -> None:
    """Let the renewal end, which releases the leader lease for other replicas."""
    await asyncio.wait([renewing], timeout=_LEASE_GRACE)
    if not renewing.done():
        _log.warning("Cannot release the leader lease; other replicas wait until it expires", seconds=_LEASE_GRACE)
        renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
