"""Approval of the writes of a run: what the proxy needs to let only approved writes through. Pure."""

from __future__ import annotations

from typing import Protocol

from runner.objects import Object
from runner.proxy.planning.overlay import Overlay, PlannedWrite


class WriteApproval(Protocol):
    """Approved writes of one run."""

    @property
    def refused(self) -> str:
        """The first write that is not approved, with the reason; empty if there was none."""
        ...

    def trial(self) -> Overlay:
        """Return an overlay for the dry run of one write."""
        ...

    def refusal(self, write: PlannedWrite) -> str:
        """Return why a write is not approved; empty if it is."""
        ...

    def refuse(self, why: str) -> None:
        """Note the first write that is not approved. It ends the run."""
        ...

    def sent(self, write: PlannedWrite, obj: Object) -> None:
        """Note the result of a write: the API server can have chosen other values than in the plan."""
        ...
