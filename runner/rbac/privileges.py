"""Rights that the operator requires by its settings and watches: checked at start, recorded with `--record-rbac`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from runner.config.settings import Settings
from runner.kube.client import CallObserver, Client
from runner.kube.credentials.auth import OwnNamespaces
from runner.kube.discovery import ApiResource, Discovery
from runner.pods.setup import authority_name
from runner.proxy.calls import Observer
from runner.rbac import rights
from runner.rbac.check import RightsCheck
from runner.rbac.record import RightsRecord
from runner.rbac.rights import Right
from runner.watches.watch import Watch


class OperatorRights:
    """Check and record of one operator."""

    def __init__(self, settings: Settings, watches: Sequence[Watch]) -> None:
        """Prepare check and record.

        Raises:
            ConfigError: the file of the record cannot be used.
        """
        self._settings = settings
        self._watches = watches
        path = settings.record_rbac
        self._own = own = OwnNamespaces.of_process(settings.leader_election_namespace)
        self._record = RightsRecord(path, everywhere=not settings.namespaces, own_namespace=own.pod) if path else None

    @property
    def noted(self) -> CallObserver | None:
        """Observer of the operator's own calls, if rights are recorded."""
        return self._record.noted if self._record else None

    def observers(self) -> list[Observer]:
        """Return the observers of runs' calls in the proxy."""
        return [Observer(answered=self._record.answered)] if self._record else []

    def close(self) -> None:
        """Write the record."""
        if self._record:
            self._record.write()

    async def follow(self, client: Client, discovery: Discovery, watches: Sequence[Watch]) -> None:
        """Check all rights once, and record until canceled. `watches` have the full names of their accounts."""
        check = RightsCheck(client, discovery, self._learn)
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(check.kind(watch.gvk, partial(self._of_watch, watch)))
            group.create_task(check.check(self._of_settings()))
            if self._record:
                group.create_task(self._record.follow())
            await asyncio.Event().wait()

    def _of_watch(self, watch: Watch, resource: ApiResource) -> set[Right]:
        namespaces = self._settings.namespaces
        found = rights.of_watch(watch, resource, namespaces)
        if watch.pods is None:
            return found
        finalizes = watch.finalizer is not None
        return found | rights.of_pods(resource, namespaces, self._own.others, finalizes=finalizes)

    def _of_settings(self) -> set[Right]:
        settings = self._settings
        found: set[Right] = rights.of_reviews() if settings.metrics_require_rbac else set()
        if any(watch.rollout is not None for watch in self._watches):
            found |= rights.of_rollouts(self._own.others or "default")
        if self._own.pod and any(watch.prune.then != "off" for watch in self._watches):
            found |= rights.of_records(self._own.pod)
        if self._own.others and any(watch.pods is not None for watch in self._watches):
            found |= rights.of_pods_authority(self._own.others, authority_name(settings))
        if self._own.others and any(watch.pods is not None and watch.pods.warm for watch in self._watches):
            found |= rights.of_warm_pods(self._own.others)
        if settings.leader_elect:
            found |= rights.of_lease(self._own.leases, settings.leader_election_id)
        return found

    def _learn(self, found: Iterable[Right]) -> None:
        if self._record:
            self._record.add(found)
