"""The proxy with its handlers and observers in their order, and the access of runs through it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from runner.app.features import FEATURES
from runner.core.kube import service_accounts
from runner.core.kube.client import Client
from runner.core.kube.discovery import ServedResources
from runner.core.proxy.handlers.authenticate import Confined
from runner.core.proxy.handlers.forward import Negotiate
from runner.core.proxy.handlers.writes import Writes
from runner.core.proxy.identity import Identities
from runner.core.proxy.server import Proxy
from runner.core.reconcile import run_access
from runner.core.reconcile.feature import ProxyBase, ProxyParts
from runner.core.reconcile.run_access import RunAccess
from runner.core.watches.watch import Watch

_GRACE = 1.0
"""Seconds for calls through the proxy after the end of all runs."""


async def open_proxy(
    stack: AsyncExitStack,
    client: Client,
    port: int,
    *,
    inject: bool,
    watches: Sequence[Watch] = (),
    more: Sequence[ProxyParts] = (),
) -> tuple[Proxy, RunAccess]:
    """Serve the proxy on `port` (0: a free one) until the stack is closed.

    `inject`: objects of runs get owners. `watches` and `more` are what an operator has, and a preview has not.

    Raises:
        ConfigError: the port is in use.
    """
    identities = Identities()
    clock = asyncio.get_running_loop().time
    served = ServedResources(client, clock)
    base = ProxyBase(watches, served, clock)
    parts = [*(feature.proxy(base) for feature in FEATURES), *more]

    def of_all(place: Callable[[ProxyParts], Sequence[Any]]) -> list[Any]:
        return [added for part in parts for added in place(part)]

    runs = of_all(lambda part: part.runs)
    handlers = [
        *of_all(lambda part: part.guards),
        Confined(),  # with the guards, before all handlers that answer
        *of_all(lambda part: part.documents),
        Negotiate(),  # before the handlers that parse
        *of_all(lambda part: part.reads),
        Writes(served, client, *runs),
        *of_all(lambda part: part.trials),
    ]
    own_paths = {path: answer for part in parts for path, answer in part.own_paths.items()}
    proxy = Proxy(client.credentials, identities, handlers, of_all(lambda part: part.observers), own_paths)
    await proxy.start(run_access.LOOPBACK, port)
    stack.push_async_callback(proxy.close, _GRACE)
    environment = run_access.secrets_in(os.environ)

    def known() -> list[str]:
        return [*client.credentials.secret_values(), *environment]

    return proxy, RunAccess(
        *(proxy, identities, runs),
        inject=inject,
        account_exists=partial(service_accounts.exists, client),
        known=known,
        prepare=[partial(prepare, send=proxy.forward) for prepare in of_all(lambda part: part.prepare)],
    )
