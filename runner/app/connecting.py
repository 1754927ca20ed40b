"""Wait for the API server at start. Logs the address, the cause and the next step of each failed attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from runner import log
from runner.errors import ApiError, ApiUnavailableError, UnauthorizedError
from runner.kube import answers
from runner.kube.client import Client
from runner.objects import Object
from runner.watches.policy import JitteredBackoff

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 15.0

_log = log.get(__name__)


async def connect(client: Client, stop: asyncio.Event, note: Callable[[str], None]) -> Object | None:
    """Return the API server's version when it responds; None if `stop` is set first.

    `note` receives the reason while the operator waits.
    """
    backoff = JitteredBackoff(_FIRST_DELAY, _LONGEST_DELAY)
    while not stop.is_set():
        try:
            return await client.request("GET", "/version")
        except (ApiError, ApiUnavailableError) as error:
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
                await asyncio.wait_for(stop.wait(), delay)
    return None


def _explained(error: ApiError | ApiUnavailableError) -> tuple[str, str]:
    """Return the event and the next step."""
    if isinstance(error, UnauthorizedError):
        return (
            "The API server rejects the credentials",
            "renew the credentials, or select others with --kubeconfig, --context or KUBECONFIG",
        )
    if isinstance(error, ApiError):
        return "The API server responds with an error", "see the error; the operator needs GET on /version"
    return "Cannot reach the API server", answers.advice(error.__cause__)
