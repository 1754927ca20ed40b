"""Delays for an owner and a dependent that trigger each other in a loop. Pure; the clock is passed in.

A role and another client that write different values to a field would trigger runs without end. Examples are a
webhook's default, an autoscaler's count, or a formatted date. A single change does not show if it is part of a loop. So
the first triggers pass at once, and each further one waits twice as long, up to minutes. Each field of each dependent
has a level. A trigger raises it by one. After a quiet period it falls by one per minute. So other fields trigger
without delay, and a loop stays slow regardless of the duration of its runs. With `auto`, a status has one level, and
another one for rollouts.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from runner.core.dependents.notification import Notification
from runner.core.queue.reasons import RunReason
from runner.values.objects import ObjectRef

_AT_ONCE = 5
"""Triggers per owner and field of a dependent that pass without delay."""
_FIRST_DELAY = 2.0
_LONGEST_DELAY = 300.0
_LONGEST_FOR_STATUS = 30.0
"""Longest delay for a field of status, which changes several times before it has the expected value."""
_QUIET = 300.0
"""Seconds until a level begins to fall."""
_FALLS = 60.0
"""Seconds in which a level falls by one."""
_HIGHEST = 14
"""Maximum level, which limits the recovery to 20 minutes."""
_MOST = 4096
_MOST_FIELDS = 64


@dataclass(frozen=True, slots=True)
class TriggerPair:
    """An owner and one of its dependents, or an object and one of its references; never compared by UID."""

    target: ObjectRef
    source: ObjectRef
    reason: RunReason

    @classmethod
    def of(cls, notification: Notification) -> TriggerPair:
        """Return the objects of a notification."""
        return cls(notification.target, notification.source, notification.reason)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Delay of a trigger."""

    seconds: float
    """0 if it passes at once."""
    fields: tuple[str, ...] = ()
    """Fields that change repeatedly."""
    over_in: float = 0.0
    """Seconds until such a change would pass at once."""


@dataclass(slots=True)
class _Level:
    height: float = 0.0
    due: float = 0.0
    """Time at which the last trigger passed or will pass."""


@dataclass(slots=True)
class Loops:
    """Levels of each field, by owner and dependent."""

    _pairs: OrderedDict[TriggerPair, dict[str, _Level]] = field(default_factory=OrderedDict)
    _generations: OrderedDict[TriggerPair, int | None] = field(default_factory=OrderedDict)
    """Generation of each dependent at the last trigger by its status."""

    def slowdown(self, pair: TriggerPair, notification: Notification, now: float) -> Slowdown:
        """Count a trigger and return its delay. A trigger that is already waiting is not counted again."""
        levels = self._pairs.pop(pair, {})
        self._pairs[pair] = levels
        if len(self._pairs) > _MOST:
            self._pairs.popitem(last=False)
        fields = self._counted(pair, notification)
        delays = {name: _rise(levels.setdefault(name, _Level(due=now)), name, now) for name in fields[:_MOST_FIELDS]}
        for name in sorted(levels, key=lambda name: levels[name].due)[:-_MOST_FIELDS]:
            del levels[name]
        seconds = min(delays.values())
        if not seconds:
            return Slowdown(0.0)
        over = max(levels[name].due + _QUIET + (levels[name].height - _AT_ONCE + 1) * _FALLS for name in delays)
        return Slowdown(seconds, notification.fields if notification.is_status else tuple(delays), over - now)

    def _counted(self, pair: TriggerPair, notification: Notification) -> tuple[str, ...]:
        """Return the names of the levels that a trigger raises."""
        if not notification.is_status:
            return notification.fields or (notification.what,)
        # As a whole, because its fields can have new names each time. If the spec changes each time, runs write it.
        generation = notification.state.generation if notification.state is not None else None
        last = self._generations.pop(pair, generation)
        self._generations[pair] = generation
        if len(self._generations) > _MOST:
            self._generations.popitem(last=False)
        return ("status",) if last == generation else ("rollout",)


def _rise(level: _Level, name: str, now: float) -> float:
    """Count a trigger for a field; return its delay in seconds."""
    if now < level.due:
        return level.due - now
    level.height = min(max(level.height - _fallen(level, now), 0.0) + 1, _HIGHEST)
    excess = int(level.height) - _AT_ONCE
    longest = _LONGEST_FOR_STATUS if name.partition(".")[0] == "status" else _LONGEST_DELAY
    delay = min(_FIRST_DELAY * 2.0 ** (excess - 1), longest) if excess > 0 else 0.0
    level.due = now + delay
    return delay


def _fallen(level: _Level, now: float) -> float:
    return max(now - level.due - _QUIET, 0.0) / _FALLS


AT_ONCE = 30
"""Runs of an owner that start without delay."""
INTERVAL = 10.0
"""Seconds between further runs."""
_MOST_OWNERS = 4096


class TriggerBudget:
    """Token buckets of all owners.

    Users of other namespaces can change these dependents. A token bucket per owner bounds the runs that they cause, for
    any number of dependents and fields.
    """

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
        if len(self._full_at) > _MOST_OWNERS:
            self._full_at.popitem(last=False)
        return 0.0

    def forget(self, owner: ObjectRef) -> None:
        """Drop the state of a deleted owner."""
        self._full_at.pop(owner, None)
