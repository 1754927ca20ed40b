"""Parts of an operator beside its kinds, such as a page about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from runner.base.monitoring.background import Work
from runner.base.page import PageSections
from runner.core.kube.client import CallObserver, Client
from runner.core.kube.discovery import Discovery
from runner.core.proxy.calls import Observer
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.run_log import RunObserver


@dataclass(frozen=True, slots=True)
class Started:
    """An operator whose kinds exist."""

    stack: AsyncExitStack
    """Closed when the operator ends."""
    client: Client
    discovery: Discovery
    kinds: Sequence[Controller]
    sections: Sequence[PageSections]
    """Sections of features for a page."""


class Part:
    """Part of an operator beside its kinds. It does nothing unless it overrides a field or a method."""

    recorders: Sequence[RunObserver] = ()
    """Record the runs."""
    observers: Sequence[Observer] = ()
    """Receive the calls of runs."""
    noted: CallObserver | None = None
    """Receives the calls of the operator itself."""
    connections: Mapping[str, Callable[[], asyncio.Protocol]] = {}
    """By the variable with the address of a server for runs: makes the protocol of a further connection to it."""

    async def open(self, stack: AsyncExitStack) -> Mapping[str, str]:  # noqa: ARG002 - for parts
        """Start servers for runs, until `stack` is closed. Return variables for the environment of runs."""
        return {}

    async def start(self, started: Started) -> Mapping[str, Work]:  # noqa: ARG002 - as above
        """Start what needs the kinds. Return work to keep in the background, by its name."""
        return {}
