"""Which kinds the API server serves, and under which paths.

One request per group and version (`/apis/g/v`, `/api/v1`), which every authenticated user may make
(`system:discovery`). What was found is kept until someone says `forget`; what was not found is asked for each time.

Must not import: the client (it imports this).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from runner.errors import KindNotFoundError, NotFoundError
from runner.objects import GVK, Object


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind as the API server serves it."""

    gvk: GVK
    plural: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: frozenset[str]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL's path of an object, or of all objects without a name; all namespaces without a namespace."""
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
        """The name that RBAC knows the resource by: `plural.group`."""
        return f"{self.plural}.{self.gvk.group}" if self.gvk.group else self.plural


class DiscoveryClient(Protocol):
    """What discovery needs of a client."""

    async def request(self, method: str, path: str) -> Object:
        """Send one request and return the object that comes back."""
        ...


class Discovery:
    """Finds kinds and remembers them."""

    def __init__(self, client: DiscoveryClient) -> None:
        self._client = client
        self._found: dict[GVK, ApiResource] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def find(self, gvk: GVK) -> ApiResource:
        """Say how a kind is served. KindNotFoundError when it is not; errors of the client else."""
        if gvk in self._found:
            return self._found[gvk]
        async with self._asking.setdefault(gvk.api_version, asyncio.Lock()):
            # Kinds of one group and version are found together: the first one asks, the others wait for it.
            if gvk not in self._found:
                self._found.update(await self._ask(gvk.group, gvk.version))
        if gvk not in self._found:
            raise KindNotFoundError(f"the API server does not serve {gvk}; install its CRD with this version served")
        return self._found[gvk]

    def forget(self, gvk: GVK) -> None:
        """Ask again next time: the kind may have gone or changed."""
        self._found.pop(gvk, None)

    async def _ask(self, group: str, version: str) -> dict[GVK, ApiResource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self._client.request("GET", path)
        except NotFoundError:
            return {}
        return parse(group, version, answer)


def parse(group: str, version: str, answer: Mapping[str, object]) -> dict[GVK, ApiResource]:
    """Read an `APIResourceList`."""
    entries = answer.get("resources")
    resources = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    below: dict[str, set[str]] = {}
    for entry in resources:
        plural, slash, subresource = str(entry["name"]).partition("/")
        if slash:
            below.setdefault(plural, set()).add(subresource)
    found = (
        ApiResource(
            gvk=GVK(group, version, str(entry["kind"])),
            plural=str(entry["name"]),
            namespaced=bool(entry.get("namespaced")),
            verbs=frozenset(entry.get("verbs") or ()),
            subresources=frozenset(below.get(str(entry["name"]), ())),
        )
        for entry in resources
        if "/" not in str(entry["name"])
    )
    return {resource.gvk: resource for resource in found}
