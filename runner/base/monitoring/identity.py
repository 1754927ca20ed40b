"""Check that the API server accepts an identity of the operator: its own, or the service account of watches.

An open watch outlives the token and the rights with which it was opened, so that it shows neither. If no request of an
identity was accepted for a while, the check sends one. Rule: it fails only if everything is refused. A refusal of one
kind or namespace is none of the identity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, UnauthorizedError

_PERIOD = 10.0
"""Seconds."""
_REFUSED = frozenset({401, 403})
_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")


class IdentityCheck:
    """Check of one identity."""

    def __init__(self, user: str, probe: Callable[[], Awaitable[object]]) -> None:
        """`user`: name of an impersonated account, empty for the operator's own identity. `probe` sends a request."""
        self.problem: str | None = None
        """The refusal while everything is refused."""
        self._user = user
        self._probe = probe
        self._is_accepted = True

    def noted(self, path: str, status: int, user: str) -> None:
        """Note the response to a request of the operator; `status` is 0 without one."""
        if user == self._user and status and status not in _REFUSED and _is_about_objects(path):
            self._is_accepted, self.problem = True, None

    async def follow(self) -> None:
        """Check until canceled."""
        while True:
            self._is_accepted = False
            await asyncio.sleep(_PERIOD)
            if self._is_accepted:
                continue
            try:
                await self._probe()
            except (UnauthorizedError, ForbiddenError) as error:
                self.problem = f"the API server refuses all requests: {error}"
            except (ApiError, ApiUnavailableError):
                continue  # the checks of the watches report it
            else:
                self.problem = None


def _is_about_objects(path: str) -> bool:
    """Return False for discovery and reviews, which need no right."""
    parts = path.strip("/").split("/")
    return len(parts) > (2 if parts[0] == "api" else 3) and parts[1] not in _REVIEWS
