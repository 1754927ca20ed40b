"""Rights that the operator requires by its settings and watches: checked at start, recorded with `--record-rbac`.

The check is by SelfSubjectAccessReviews, which every account may create. It logs one warning per resource with the
missing verbs and the rule to add. Nothing waits for the check, and it stops nothing: requests without a right fail by
themselves, and succeed once the right is granted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from runner.base import log
from runner.base.config.settings import Settings
from runner.base.credentials.auth import OwnNamespaces
from runner.base.monitoring.background import Work
from runner.core.kube import rights
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.rights import Places, RequiredRights, Right
from runner.core.proxy.calls import Observer
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, Part, ProxyParts
from runner.core.watches.watch import Watch
from runner.features.rights.record import RightsRecord
from runner.values.errors import PASSING, ApiError, ApiUnavailableError
from runner.values.objects import GVK

_AT_ONCE = 4
_AGAIN = 5.0
"""Seconds before the next check if a kind is not served yet, or if the API server is unavailable."""
_log = log.get(__name__)


class RightsCheck:
    """Checks rights; `learn` receives all rights that are required."""

    def __init__(self, client: Client, discovery: Discovery, learn: Callable[[Iterable[Right]], None]) -> None:
        self._client = client
        self._discovery = discovery
        self._learn = learn
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def kind(self, gvk: GVK, needs: Callable[[ApiResource], set[Right]]) -> None:
        """Check a kind once it is served. `needs` returns the rights for its resource."""
        while True:
            try:
                resource = await self._discovery.find(gvk)
            except (ApiError, ApiUnavailableError):
                await asyncio.sleep(_AGAIN)
                continue
            await self.check(needs(resource))
            return

    async def check(self, needed: set[Right]) -> None:
        """Check rights, and log the missing ones by resource."""
        self._learn(needed)
        while True:
            try:
                lacking = await asyncio.gather(*(self._lacks(right) for right in sorted(needed)))
                missing = [right for right, lacks in zip(sorted(needed), lacking, strict=True) if lacks]
                user = await self._user() if missing else ""
            except PASSING:
                await asyncio.sleep(_AGAIN)
                continue
            except ApiError as error:
                _log.warning("Cannot check the operator's rights", error=str(error))
                return
            break
        for sentence in rights.sentences(replace(right, account=user) for right in missing):
            _log.warning("The operator lacks a right; add the rule", problem=sentence)

    async def _lacks(self, right: Right) -> bool:
        async with self._turns:
            return not await rights.is_allowed(self._client, right)

    async def _user(self) -> str:
        try:
            return await rights.own_user(self._client) or "the operator"
        except ApiError:
            return "the operator"


class OperatorRights(Part):
    """Check and record of one operator."""

    def __init__(self, settings: Settings) -> None:
        """Prepare check and record. Raises ConfigError if the file of the record cannot be used."""
        self._settings = settings
        path = settings.record_rbac
        own = OwnNamespaces.of_process(settings.leader_election_namespace)
        self._places = Places(settings.namespaces, own)
        self._record: RightsRecord | None = None
        if path is not None:
            self._record = record = RightsRecord(path, everywhere=not settings.namespaces, own_namespace=own.pod)
            self.noted = record.noted
            self.proxy = ProxyParts(observers=(Observer(answered=record.answered),))

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:  # noqa: ARG002 - as Part has it
        """Check and record in the background, and write the record at the end."""
        if self._record is not None:
            operator.stack.callback(self._record.write)
        required = operator.rights
        return {"rights": partial(self.follow, operator.client, operator.discovery, operator.watches, required)}

    async def follow(
        self, client: Client, discovery: Discovery, watches: Sequence[Watch], required: Sequence[RequiredRights]
    ) -> None:
        """Check all `required` rights once, and record until canceled.

        `watches` have the full names of their accounts.
        """
        check = RightsCheck(client, discovery, self._learn)
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(check.kind(watch.gvk, partial(self._of_watch, required, watch)))
            group.create_task(check.check(self._of_operator(required, watches)))
            if self._record:
                group.create_task(self._record.follow())
            await asyncio.Event().wait()

    def _of_watch(self, required: Sequence[RequiredRights], watch: Watch, resource: ApiResource) -> set[Right]:
        return set().union(*(part.of_watch(watch, resource, self._places) for part in required))

    def _of_operator(self, required: Sequence[RequiredRights], watches: Sequence[Watch]) -> set[Right]:
        own = self._places.own
        return set().union(*(part.of_operator(self._settings, watches, own) for part in required))

    def _learn(self, required: Iterable[Right]) -> None:
        if self._record:
            self._record.add(required)
