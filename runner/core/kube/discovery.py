"""Discovery: the kinds that the API server serves, and their paths.

One request per group and version (`/apis/g/v`, `/api/v1`), which every authenticated user may send
(`system:discovery`). Found kinds are cached until `forget`; missing kinds are requested each time.

Must not import: the client (it imports this).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from runner.values.errors import KindNotFoundError, NotFoundError
from runner.values.objects import GVK, Object, maps

_LOOKUP_TTL = 300.0
_MOST_LOOKUPS = 500


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind as the API server serves it."""

    gvk: GVK
    plural: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: frozenset[str]
    short_names: frozenset[str] = frozenset()

    @property
    def uses_generation(self) -> bool:
        """True if `metadata.generation` follows the spec. Without a subresource, writes of the status raise it too."""
        return "status" in self.subresources

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or of all objects without a name, or of all namespaces."""
        parts = ["/apis", self.gvk.group, self.gvk.version] if self.gvk.group else ["/api", self.gvk.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    @property
    def qualified(self) -> str:
        """Resource name as in RBAC: `plural.group`."""
        return f"{self.plural}.{self.gvk.group}" if self.gvk.group else self.plural


class DiscoveryClient(Protocol):
    """Client methods that discovery uses."""

    async def request(self, method: str, path: str) -> Object:
        """Send one request and return the object in the response."""
        ...


class Discovery:
    """Cache of the kinds."""

    def __init__(self, client: DiscoveryClient) -> None:
        self._client = client
        self._found: dict[GVK, ApiResource] = {}
        self._requesting: dict[str, asyncio.Lock] = {}

    async def find(self, gvk: GVK) -> ApiResource:
        """Return how a kind is served. Raises KindNotFoundError, or errors of the client."""
        if gvk in self._found:
            return self._found[gvk]
        async with self._requesting.setdefault(gvk.api_version, asyncio.Lock()):
            # Kinds of one group and version are found together: the first sends the request, the others wait.
            if gvk not in self._found:
                self._found.update(await served(self._client, gvk.group, gvk.version))
        if gvk not in self._found:
            raise KindNotFoundError(f"the API server does not serve {gvk}; install its CRD with this version served")
        return self._found[gvk]

    def forget(self, gvk: GVK) -> None:
        """Request the kind again next time, because it may have changed."""
        self._found.pop(gvk, None)


class ServedResources:
    """The API server's resources by group, version and plural, cached for five minutes.

    An unknown plural is looked up each time, since a run can have installed it a moment ago.
    """

    def __init__(self, client: DiscoveryClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lookups: dict[tuple[str, str], tuple[float, dict[str, ApiResource]]] = {}
        """Time of each lookup, and resources by plural."""

    async def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return a resource; None if the API server does not serve it. Raises ApiError."""
        key, now = (group, version), self._clock()
        at, resources = self._lookups.get(key, (now, {}))
        if len(self._lookups) >= _MOST_LOOKUPS:
            self._lookups.clear()  # a client can ask for any group
        if plural not in resources or at < now - _LOOKUP_TTL:
            resources = {resource.plural: resource for resource in (await served(self._client, *key)).values()}
            self._lookups[key] = now, resources
        return resources.get(plural)

    def forget(self) -> None:
        """Drop all lookups: the served resources can have changed."""
        self._lookups.clear()


async def served(client: DiscoveryClient, group: str, version: str) -> dict[GVK, ApiResource]:
    """Request the kinds of a group and version; none if the API server does not serve it."""
    try:
        answer = await client.request("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
    except (NotFoundError, KindNotFoundError):
        return {}
    return parse(group, version, answer)


def parse(group: str, version: str, answer: Mapping[str, object]) -> dict[GVK, ApiResource]:
    """Parse an `APIResourceList`. Entries of an aggregated API server without a name or a kind are ignored."""
    resources = [item for item in maps(answer.get("resources")) if item.get("name") and item.get("kind")]
    below: dict[str, set[str]] = {}
    for entry in resources:
        plural, slash, subresource = str(entry["name"]).partition("/")
        if slash:
            below.setdefault(plural, set()).add(subresource)
    kinds = (
        ApiResource(
            gvk=GVK(group, version, str(entry["kind"])),
            plural=str(entry["name"]),
            namespaced=bool(entry.get("namespaced")),
            verbs=frozenset(entry.get("verbs") or ()),
            subresources=frozenset(below.get(str(entry["name"]), ())),
            short_names=frozenset(entry.get("shortNames") or ()),
        )
        for entry in resources
        if "/" not in str(entry["name"])
    )
    return {resource.gvk: resource for resource in kinds}
