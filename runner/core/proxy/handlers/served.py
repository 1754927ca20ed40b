"""Resources that the API server serves, for handlers that need the kind of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runner.core.kube import discovery
from runner.core.kube.discovery import ApiResource, DiscoveryClient
from runner.core.proxy.request import RequestInfo
from runner.values.errors import KindNotFoundError, NotFoundError

_LOOKUP_TTL = 300.0
_MOST_LOOKUPS = 500


@dataclass(frozen=True, slots=True)
class _Lookup:
    at: float
    resources: dict[str, ApiResource]


class ServedResources:
    """The API server's resources by group, version and plural, cached for five minutes. An unknown plural is looked up
    each time, since a run can have installed it a moment ago.
    """  # noqa: D205 - one thought

    def __init__(self, client: DiscoveryClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lookups: dict[tuple[str, str], _Lookup] = {}

    async def find(self, info: RequestInfo) -> ApiResource | None:
        """Return the resource of a path; None if the API server does not serve it. Raises ApiError."""
        key = (info.group, info.version)
        lookup = self._lookups.get(key)
        if len(self._lookups) >= _MOST_LOOKUPS:
            self._lookups.clear()  # a client can ask for any group
        if lookup is None or info.resource not in lookup.resources or lookup.at < self._clock() - _LOOKUP_TTL:
            lookup = self._lookups[key] = _Lookup(self._clock(), await self._discover(*key))
        return lookup.resources.get(info.resource)

    def forget(self) -> None:
        """Drop all lookups: the served resources can have changed."""
        self._lookups.clear()

    async def _discover(self, group: str, version: str) -> dict[str, ApiResource]:
        try:
            answer = await self._client.request("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
        except (NotFoundError, KindNotFoundError):
            return {}
        return {resource.plural: resource for resource in discovery.parse(group, version, answer).values()}
