"""A proxy before the real control plane, and what a run sees of it."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from yarl import URL

from runner.app.features import OWN_STATUS
from runner.base.credentials import auth
from runner.core.dependents.watching import Dependents
from runner.core.kube.discovery import ApiResource
from runner.core.proxy.calls import Answer, Call, Proceed
from runner.core.proxy.identity import Identities, RunIdentity
from runner.core.proxy.server import Proxy
from runner.features.plan.approved import APPROVED, ApprovedPlan
from runner.features.plan.changes import PlannedOwner
from runner.features.plan.trial.overlay import Overlay
from runner.features.readcache.bodies import ReadCache
from runner.values.objects import Object, Owner
from runner.values.slots import EMPTY
from tests.kit.wait import until

Dump = Callable[..., dict[str, str]]


@dataclass
class Observer:
    """Records the reports of the proxy."""

    reports: list[str] = field(default_factory=list)

    def wants(self, owner: Owner, resource: ApiResource, namespace: str) -> bool:
        del namespace
        return owner.namespaced and resource.plural == "configmaps"

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append(f"read {resource.plural} {obj['metadata']['name']} of {owner.ref.key.name}")

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        self.reports.append(f"wrote {resource.plural} {obj['metadata'].get('name', '')} of {owner.ref.key.name}")

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        name = (answer.get("details") or answer["metadata"]).get("name", "")
        self.reports.append(f"deleted {resource.plural} {name} of {owner.ref.key.name}")


@dataclass
class Passed:
    """The last handler: remembers what is passed on to the API server."""

    targets: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda _method, _target: None
    """Called before a request is passed on."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        self.targets.append(call.head.target)
        await asyncio.to_thread(self.before, call.head.method, call.head.target)
        return await proceed(call)


@dataclass
class Standing:
    """A proxy that runs in a thread, and one run that may use it."""

    proxy: Proxy
    identities: Identities
    run: RunIdentity
    token: str
    kubeconfig: Path
    observer: Observer
    passed: Passed
    loop: asyncio.AbstractEventLoop

    def another_run(self) -> None:
        """From here on the kubeconfig is that of another run of the same owner."""
        self.token = self.identities.issue(self.run)
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))

    def plan(self) -> Overlay:
        """From here on the kubeconfig is that of a plan run of the same owner; return its overlay."""
        overlay = Overlay()
        self.token = self.identities.issue(replace(self.run, view=overlay))
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))
        return overlay

    def approve(self, overlay: Overlay) -> ApprovedPlan:
        """From here on the kubeconfig is that of a run that may make the planned writes."""
        approved = ApprovedPlan(overlay, PlannedOwner(self.run.owner.ref, OWN_STATUS), lambda _why: None)
        self.token = self.identities.issue(replace(self.run, is_bound=True, more=EMPTY.having(APPROVED, approved)))
        self.kubeconfig.write_text(self.proxy.kubeconfig_for(self.token))
        return approved

    def revoke(self) -> None:
        self.loop.call_soon_threadsafe(self.identities.revoke, self.token)


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_hit(self) -> bool:
        return self.headers.get("X-Cache") == "HIT"

    @property
    def obj(self) -> Object:
        found: Object = orjson.loads(self.body)
        return found

    @property
    def version(self) -> str:
        return str(self.obj["metadata"]["resourceVersion"])


@dataclass
class Operating:
    """The proxy as an operator has it, with dependents that are watched, a run, and a client past the proxy."""

    namespace: str
    owner: Owner
    dependents: Dependents
    cache: ReadCache
    identities: Identities
    proxy: Proxy
    credentials: auth.Credentials
    session: aiohttp.ClientSession
    results: Counter[str]
    """Reads of owned objects: `hit`, `miss`."""
    token: str = ""

    def run(self, **different: Any) -> str:
        """Begin a run of the owner; return its token."""
        plain = RunIdentity("job", self.owner, True, True, "")  # noqa: FBT003 - in order
        return self.identities.issue(replace(plain, **different))

    async def ask(self, method: str, path: str, body: object = None, *, token: str = "", **headers: str) -> Reply:
        """Ask through the proxy, as the run of `token` or of the fixture."""
        login = {"Authorization": f"Bearer {token or self.token}"}
        return await self._send(method, self.proxy.url + path, body, {**login, **headers}, None)

    async def directly(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Ask the API server."""
        login = dict(await self.credentials.headers())
        return await self._send(
            method, self.credentials.base_url + path, body, {**login, **headers}, self.credentials.ssl
        )

    async def _send(
        self, method: str, url: str, body: object, headers: dict[str, str], tls: ssl.SSLContext | None
    ) -> Reply:
        merge = "application/merge-patch+json" if method == "PATCH" else "application/json"
        named = {"Accept": "application/json", "Content-Type": merge, **headers}
        data = None if body is None else orjson.dumps(body)
        asked = self.session.request(method, URL(url, encoded=True), data=data, headers=named, ssl=tls or True)
        async with asked as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def hits(self, path: str) -> Reply:
        """Read until that is answered from memory."""
        replies: list[Reply] = []

        async def is_hit() -> bool:
            replies.append(await self.ask("GET", path))
            return replies[-1].is_hit

        await until(is_hit, f"{path} to be answered from memory")
        return replies[-1]
