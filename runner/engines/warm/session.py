"""Isolation of a run's modules from its playbook in sessions and groups of processes.

Since ansible-core 2.19 a worker and its modules have their own session without a terminal. The process from which
modules are forked has one too. A worker's end also ends its modules, through their group.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from enum import Enum


class Session(Enum):
    """The isolation of modules."""

    SHARED = "shared"
    OWN_GROUP = "own group"
    OWN = "own"

    def begin(self) -> None:
        """Isolate this process; modules inherit the session or group."""
        if self is Session.OWN:
            os.setsid()
        elif self is Session.OWN_GROUP:
            os.setpgid(0, 0)

    def end(self, leader: int, modules: Iterable[int], number: int) -> None:
        """Send a signal to modules and the processes that they started. `leader` is the process that called `begin`."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self is not Session.SHARED:
                os.killpg(leader, number)
                return
            for pid in modules:
                os.kill(pid, number)
