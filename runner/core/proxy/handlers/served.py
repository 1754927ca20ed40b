"""Resources that the API server serves, for handlers that need the kind of a request."""

from __future__ import annotations

from collections.abc import Callable

from runner.core.kube import discovery
from runner.core.kube.discovery import ApiResource, DiscoveryClient
from runner.core.proxy.request import RequestInfo

_LOOKUP_TTL = 300.0
_MOST_LOOKUPS = 500


class ServedResources:
    """The API server's resources by group, version and plural, cached for five minutes. An unknown plural is looked up
    each time, since a run can have installed it a moment ago.
    """  # noqa: D205 - one thought

    def __init__(self, client: DiscoveryClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lookups: dict[tuple[str, str], tuple[float, dict[str, ApiResource]]] = {}
        """Time of each lookup, and resources by plural."""

    async def find(self, info: RequestInfo) -> ApiResource | None:
        """Return the resource of a path; None if the API server does not serve it. Raises ApiError."""
        key, now = (info.group, info.version), self._clock()
        at, resources = self._lookups.get(key, (now, {}))
        if len(self._lookups) >= _MOST_LOOKUPS:
            self._lookups.clear()  # a client can ask for any group
        if info.resource not in resources or at < now - _LOOKUP_TTL:
            served = await discovery.served(self._client, *key)
            resources = {resource.plural: resource for resource in served.values()}
            self._lookups[key] = now, resources
        return resources.get(info.resource)

    def forget(self) -> None:
        """Drop all lookups: the served resources can have changed."""
        self._lookups.clear()
