"""The proxy with its handlers and observers in their order, and the access of runs through it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from runner.core.kube import service_accounts
from runner.core.kube.client import Client
from runner.core.proxy.calls import Handler, Observer
from runner.core.proxy.handlers.confined import Confined
from runner.core.proxy.handlers.negotiate import Negotiate
from runner.core.proxy.handlers.served import ServedResources
from runner.core.proxy.handlers.writes import Writes
from runner.core.proxy.identity import Identities
from runner.core.proxy.server import Proxy
from runner.core.reconcile import run_access
from runner.core.reconcile.run_access import AccessObserver, RunAccess
from runner.features.discoverycache.handler import DiscoveryCache
from runner.features.masking import requests as masked
from runner.features.plan.requests.handler import Planning
from runner.features.prune import requests as pruned
from runner.features.unchanged import requests as unchanged

_GRACE = 1.0
"""Seconds for calls through the proxy after the end of all runs."""


@dataclass(frozen=True, slots=True)
class OperatorHandlers:
    """Handlers and observers that only an operator has, and no preview."""

    guards: Sequence[Handler] = ()
    """Refuse requests before any other handler."""
    reads: Sequence[Handler] = ()
    """Answer reads from memory."""
    runs: Sequence[AccessObserver] = ()
    """Observe runs, and the objects that they write and read."""
    calls: Sequence[Observer] = ()
    """Observe calls after those of the features below."""


async def open_proxy(
    stack: AsyncExitStack, client: Client, port: int, more: OperatorHandlers, *, inject: bool
) -> tuple[Proxy, RunAccess]:
    """Serve the proxy on `port` (0: a free one) until the stack is closed. `inject`: objects of runs get owners.

    Raises:
        ConfigError: the port is in use.
    """
    identities = Identities()
    clock = asyncio.get_running_loop().time
    served = ServedResources(client, clock)
    discovery_cache = DiscoveryCache(clock, served.forget)
    handlers: list[Handler] = [
        *more.guards,
        Confined(),  # with the guards, before all handlers that answer
        discovery_cache,  # before the format is chosen: it returns each document in the format of its request
        Negotiate(),  # before the handlers that parse
        *more.reads,  # before the handlers that send requests for a run
        Writes(served, client, *more.runs, hook=pruned.creations),
        Planning(served, clock),  # last, so that all others treat a plan run like a real one
    ]
    observers = [masked.OBSERVER, unchanged.OBSERVER, pruned.OBSERVER, *more.calls]  # secrets before a request waits
    own_paths = {masked.NO_LOG_PATH: masked.receive}
    proxy = Proxy(client.credentials, identities, handlers, observers, own_paths)
    await proxy.start(run_access.LOOPBACK, port)
    stack.push_async_callback(proxy.close, _GRACE)
    environment = run_access.secrets_in(os.environ)

    def known() -> list[str]:
        return [*client.credentials.secret_values(), *environment]

    return proxy, RunAccess(
        *(proxy, identities, more.runs),
        inject=inject,
        account_exists=partial(service_accounts.exists, client),
        known=known,
        prepare=partial(discovery_cache.read_ahead, send=proxy.forward),
    )
