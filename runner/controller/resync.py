"""When an object's next periodic run comes. Pure; the clock is passed in.

Each object has its own times, a period apart, which its uid tells: those of many objects are spread over the whole
period, whatever made them run at once (the operator's start, a role's new version, an apply of all), and neither a
restart nor another replica moves them. Until a run stands at such a time, the next one comes after half a period to a
whole one.
"""

from __future__ import annotations

import hashlib

_DIGEST_SIZE = 8


def wait(period: float, uid: str, now: float, *, settled: bool) -> float:
    """Seconds from `now` (since the epoch) until the object's next periodic run: more than 0, at most `period`.

    `settled`: the last run was for a reason of the object's own, so that less than half a period would be too soon;
    else it was for the operator's start, which says nothing of when the object ran before.
    """
    phase = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=_DIGEST_SIZE).digest()) / (1 << 8 * _DIGEST_SIZE)
    distance = period - (now - phase * period) % period
    if settled and distance < period / 2:
        # The time after that is too far; half the way to it leaves as much for the other half.
        return (distance + period) / 2
    return distance
