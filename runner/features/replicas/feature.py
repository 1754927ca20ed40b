"""Leader election as part of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.kube.rights import RequiredRights, Right, granting
from runner.core.reconcile.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack

    from runner.base.config.settings import Settings
    from runner.base.credentials.auth import Credentials, OwnNamespaces
    from runner.base.meters import Meters
    from runner.core.watches.watch import Watch
    from runner.values.lease_guard import Leadership


async def _leadership(
    settings: Settings, credentials: Credentials, meters: Meters, stack: AsyncExitStack
) -> Leadership:
    from runner.features.replicas import replica  # noqa: PLC0415 - see Feature

    return await replica.make(settings, credentials, meters, stack)


def _rights(settings: Settings, _: Sequence[Watch], own: OwnNamespaces) -> set[Right]:
    """Return the rights for leader election. The authorizer does not know the name of an object that is created."""
    if not settings.leader_elect:
        return set()
    leases, spaces = ("coordination.k8s.io", "leases"), [own.leases]
    named = granting(spaces, *leases, "get", "update", name=settings.leader_election_id)
    return named | granting(spaces, *leases, "create")


FEATURE = Feature(rights=RequiredRights(of_operator=_rights), leadership=_leadership)
