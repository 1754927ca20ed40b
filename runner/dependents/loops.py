"""Slows down a dependent and an owner that wake each other in a circle. Pure; the clock is passed in.

A role that writes a value which somebody else puts back (a webhook's default, an autoscaler's count, a formatted date)
would run for ever, as fast as it can. Nobody can tell such a circle from a person at work by one change, so the first
few go through at once; then each waits twice as long, up to minutes. Each field of each dependent has a level of its
own, which rises by one with each wake, and falls again by one a minute once it has been quiet for some, so that another
field is seen to at once, and a circle stays slow for as long as it goes on, however long its runs take.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from runner.dependents.ledger import Notification
from runner.objects import GVK, ObjectKey, ObjectRef

_AT_ONCE = 5
"""So many wakes of an owner for one field of one of its dependents go through unhindered."""
_FIRST_DELAY = 2.0
_LONGEST_DELAY = 300.0
_LONGEST_FOR_STATUS = 30.0
"""The same for a field of status, which moves many times by itself before it says what an owner waits for."""
_QUIET = 300.0
"""Seconds after which a level begins to fall."""
_FALLS = 60.0
"""Seconds in which it falls by one."""
_HIGHEST = 14
"""No level is higher, so that all is as it was after 20 minutes."""
_MOST = 4096
_MOST_FIELDS = 64


@dataclass(frozen=True, slots=True)
class TriggerPair:
    """An owner and one of its dependents, or an object and one that it names."""

    target: ObjectRef
    kind: GVK
    key: ObjectKey
    is_reference: bool = False


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How a wake is put off."""

    seconds: float
    """0: it goes through at once."""
    fields: tuple[str, ...] = ()
    """What has changed again and again."""
    over_in: float = 0.0
    """Seconds until such a change would go through at once again."""


@dataclass(slots=True)
class _Level:
    height: float = 0.0
    due: float = 0.0
    """When the last wake went through, or is to."""


@dataclass(slots=True)
class Loops:
    """How often each field of each dependent has woken each owner of late."""

    _pairs: OrderedDict[TriggerPair, dict[str, _Level]] = field(default_factory=OrderedDict)

    def slowdown(self, pair: TriggerPair, news: Notification, now: float) -> Slowdown:
        """Count a wake, and say how long it has to wait; a wake that waits already is not counted again."""
        levels = self._pairs.pop(pair, {})
        self._pairs[pair] = levels
        if len(self._pairs) > _MOST:
            self._pairs.popitem(last=False)
        fields = news.fields or (news.what,)
        delays = {name: _rise(levels.setdefault(name, _Level(due=now)), name, now) for name in fields[:_MOST_FIELDS]}
        for name in sorted(levels, key=lambda name: levels[name].due)[:-_MOST_FIELDS]:
            del levels[name]
        seconds = min(delays.values())
        if not seconds:
            return Slowdown(0.0)
        over = max(levels[name].due + _QUIET + (levels[name].height - _AT_ONCE + 1) * _FALLS for name in delays)
        return Slowdown(seconds, tuple(delays), over - now)


def _rise(level: _Level, name: str, now: float) -> float:
    """Count a wake for a field; return the seconds that it has to wait."""
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
