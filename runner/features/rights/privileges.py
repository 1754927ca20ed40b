"""Rights that the operator requires by its settings and watches: checked at start, recorded with `--record-rbac`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from runner.base.config.settings import Settings
from runner.base.credentials.auth import OwnNamespaces
from runner.base.monitoring.background import Work
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.kube.rights import Places, RequiredRights, Right
from runner.core.proxy.calls import Observer
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Part, ProxyParts
from runner.core.reconcile.kind import Operator
from runner.core.watches.watch import Watch
from runner.features.rights.check import RightsCheck
from runner.features.rights.record import RightsRecord


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
