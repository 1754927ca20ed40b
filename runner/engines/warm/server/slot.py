"""State of the fork server for one environment of runs. `pool` changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.engines.warm.messages import Load
from runner.engines.warm.server.client import Server


@dataclass
class Slot:
    """State of the server for one environment."""

    environment: Mapping[str, str]
    server: Server | None = None
    starting: asyncio.Task[Server] | None = None
    load: Load = field(default_factory=Load)
    may_extend: bool = True
    renewing: asyncio.Task[None] | None = None
    renew_at: float = 0.0
    renew_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to replace the server without waiting for `renew_at`."""
    renewals: int = 0
    early_deaths: int = 0
    failures: int = 0
    failure: str = ""
    """Why the latest attempt to start a server failed."""
    retry_at: float = 0.0
    problem: str = ""
    """Why runs cannot be forked from a server that is up to date; empty if they can."""
    mismatch: str = ""
    """Why runs with this environment cannot be forked; empty if they can."""
    since: float = 0.0
    """When the problem began."""
    retrying: asyncio.Task[None] | None = None
    used_at: float = 0.0

    @property
    def trouble(self) -> str:
        """Why runs with this environment start new interpreters; empty if they are forked."""
        return self.problem or self.mismatch
