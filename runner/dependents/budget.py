"""Budget of an owner for runs that dependents outside its namespace trigger. Pure; the clock is passed in.

Users of other namespaces can change these dependents. A token bucket per owner bounds the runs that they cause, for any
number of dependents and fields.
"""

from __future__ import annotations

from collections import OrderedDict

from runner.objects import ObjectRef

AT_ONCE = 30
"""Runs of an owner that start without delay."""
INTERVAL = 10.0
"""Seconds between further runs."""
_MOST = 4096


class TriggerBudget:
    """Token buckets of all owners."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[ObjectRef, float] = OrderedDict()
        """Time at which the bucket of each owner is full again."""

    def spend(self, owner: ObjectRef, now: float) -> float:
        """Take a token; return 0, or the seconds until there is one, which are at most `INTERVAL`."""
        full_at = max(self._full_at.pop(owner, now), now)
        if full_at - now > (AT_ONCE - 1) * INTERVAL:
            self._full_at[owner] = full_at
            return full_at - now - (AT_ONCE - 1) * INTERVAL
        self._full_at[owner] = full_at + INTERVAL
        if len(self._full_at) > _MOST:
            self._full_at.popitem(last=False)
        return 0.0

    def forget(self, owner: ObjectRef) -> None:
        """Drop the state of a deleted owner."""
        self._full_at.pop(owner, None)
