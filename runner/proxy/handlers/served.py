"""Which kind a path speaks of: the API server's resources by their plural.

Kept for some minutes; what is not found is asked for each time, since a run may have installed it a moment ago.
Must not import: handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import NotFoundError
from runner.kube import discovery
from runner.kube.discovery import ApiResource, DiscoveryClient
from runner.proxy.request import RequestInfo

_FRESH = 300.0


@dataclass(frozen=True, slots=True)
class _Found:
    at: float
    resources: dict[str, ApiResource]


class Served:
    """The kinds behind paths."""

    def __init__(self, client: DiscoveryClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._found: dict[tuple[str, str], _Found] = {}

    async def find(self, info: RequestInfo) -> ApiResource | None:
        """Return what the path's resource is, None when the API server does not serve it; errors of the client else."""
        key = (info.group, info.version)
        found = self._found.get(key)
        if found is None or info.resource not in found.resources or found.at < self._clock() - _FRESH:
            found = self._found[key] = _Found(self._clock(), await self._ask(*key))
        return found.resources.get(info.resource)

    def forget(self) -> None:
        """Ask for everything again: other kinds are served, or may be."""
        self._found.clear()

    async def _ask(self, group: str, version: str) -> dict[str, ApiResource]:
        try:
            answer = await self._client.request("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
        except NotFoundError:
            return {}
        return {resource.plural: resource for resource in discovery.parse(group, version, answer).values()}
