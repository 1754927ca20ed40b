"""Creation of a replica from the settings.

Owns: the identity of the replica, the namespace of the Lease, and the client for it. The client has connections of
its own, so that no other request delays a renewal.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import AsyncExitStack

from runner.base.config.settings import Settings
from runner.base.credentials.auth import Credentials, OwnNamespaces
from runner.base.meters import Meters
from runner.core.kube.client import Client, ClientLimits
from runner.features.replicas import kernel_deadline
from runner.features.replicas.election import LeaseTimes
from runner.features.replicas.leases import LeaseClient
from runner.features.replicas.replica import Replica
from runner.values.errors import ConfigError

_CONNECTIONS = 2


async def make(settings: Settings, credentials: Credentials, meters: Meters, stack: AsyncExitStack) -> Replica:
    """Create the replica of this process. Raises ConfigError if a setting is missing."""
    namespace = OwnNamespaces.of_process(settings.leader_election_namespace).leases
    if not namespace:
        raise ConfigError("--leader-election-namespace is required outside a cluster: set the namespace of the Lease")
    times = LeaseTimes(settings.leader_elect_lease_duration, settings.leader_elect_renew_deadline)
    limits = ClientLimits(total=times.renew / 2, attempts=1, connections=_CONNECTIONS)
    client = await stack.enter_async_context(Client(credentials, limits))
    # Another name for each process: one that has ended may have left runs, which its successor must not overtake.
    me = f"{settings.pod_name or socket.gethostname()}_{secrets.token_hex(8)}"
    name = settings.leader_election_id
    replica = Replica(
        LeaseClient(client, namespace, name),
        name,
        times,
        me=me,
        clock=kernel_deadline.clock,
        deadline=kernel_deadline.make(),
    )
    text = "Whether this replica holds the Lease (1) or not (0)"
    meters.observable_gauge("leader_election_master_status", text, ["name"], lambda: {name: replica.leads()})
    return replica
