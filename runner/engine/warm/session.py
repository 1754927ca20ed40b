"""How a run's modules stand apart from its playbook.

A worker has, since ansible-core 2.19, a session of its own, without a terminal, which its modules share; so has the
process that modules are forked from. Whoever ends a worker ends its modules by their group.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from enum import Enum


class Session(Enum):
    """What of their own modules have."""

    SHARED = "shared"
    OWN_GROUP = "own group"
    OWN = "own"

    def begin(self) -> None:
        """Make this process the one that modules share it with."""
        if self is Session.OWN:
            os.setsid()
        elif self is Session.OWN_GROUP:
            os.setpgid(0, 0)

    def end(self, leader: int, modules: Iterable[int], number: int) -> None:
        """Send a signal to modules, and to what they started; `leader` is the process that began this."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self is not Session.SHARED:
                os.killpg(leader, number)
                return
            for pid in modules:
                os.kill(pid, number)
