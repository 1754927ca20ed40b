"""Triggers of runs, delayed if the same field of a dependent or the same reference triggers an object repeatedly.

Owns the delayed triggers: one per owner and dependent, or object and reference. Reports the start and the end of each
delay. Dependents outside the namespace of their owner also share a budget, which bounds the runs that they trigger.
Steps of a rollout wait for its end, so that a rollout triggers one run, or two if it lasts longer than `ROLLOUT_WAITS`.

A role and another client that write different values to a field would trigger runs without end. Examples are a
webhook's default, an autoscaler's count, or a formatted date. A single change does not show if it is part of a loop. So
the first triggers pass at once, and each further one waits twice as long, up to minutes. Each field of each dependent
has a level. A trigger raises it by one. After a quiet period it falls by one per minute. So other fields trigger
without delay, and a loop stays slow regardless of the duration of its runs. With `auto`, a status has one level, and
another one for rollouts.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from runner.base import log
from runner.base.meters import Meters
from runner.core.dependents.notification import Notification
from runner.core.queue import reasons
from runner.core.queue.reasons import Cause, RunReason
from runner.values.objects import GVK, ObjectKey, ObjectRef

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


ROLLOUT_WAITS = (10.0, 120.0)
"""Seconds until a rollout in progress triggers a run: the first one, and each further one."""
_MOST_NAMED = 5
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Contention:
    """A dependent or reference that changes repeatedly after an object's runs."""

    ref: ObjectRef
    what: str
    """The change, for users."""
    fields: tuple[str, ...]
    """Changed fields; empty if unknown or if the object was deleted."""
    by: str
    """Field manager of the change; empty if unknown."""
    relation: str
    """What the changed object is to the other one: `dependent` or `reference`."""

    @property
    def reason(self) -> str:
        """Reason for conditions and Events."""
        return f"{self.relation.capitalize()}ChangedAgain"

    def sentence(self) -> str:
        """Return the message for users; it does not vary while the contention lasts."""
        named = ", ".join(self.fields[:_MOST_NAMED]) + (" and more" if len(self.fields) > _MOST_NAMED else "")
        by = f" (by {self.by})" if self.by else ""
        change = f": {named} changes" if named else f" {self.what}"
        advice = "Change the role or the other client so that only one of them writes it."
        if self.fields and all(_is_status(name) for name in self.fields):
            advice = (
                "Check that the role writes the same in each run, or set watchDependentStatus: false in watches.yaml."
            )
        return f"{self.ref}{change} repeatedly{by} after this object's runs, so these are delayed. {advice}"


OnContention = Callable[[ObjectKey, Contention | None], None]
"""Receives the contention of an owner, or None at its end."""


@dataclass(slots=True)
class _Held:
    due: float
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class _Rollout:
    """Rollout of a dependent or reference."""

    timer: asyncio.TimerHandle | None = None
    """Trigger by the steps since the last run."""
    runs: int = 0
    """Runs that its steps have triggered."""


@dataclass(slots=True)
class LoopGuard:
    """See the module."""

    wake: Callable[[ObjectRef, Cause], None]
    """Requests a run of an object."""
    over_budget: Callable[[GVK], None] = lambda _: None
    """Receives the owner's kind each time that its budget delays a trigger."""
    reports: dict[GVK, OnContention] = field(default_factory=dict)
    """Receivers of the contentions of each kind of owners."""
    _loops: Loops = field(default_factory=Loops)
    _held: dict[TriggerPair, _Held] = field(default_factory=dict)
    _contentions: dict[ObjectRef, dict[TriggerPair, asyncio.TimerHandle]] = field(default_factory=dict)
    _budget: TriggerBudget = field(default_factory=TriggerBudget)
    _postponed: dict[ObjectRef, asyncio.TimerHandle] = field(default_factory=dict)
    """Owners without budget; each is triggered once when it has some."""
    _rollouts: dict[ObjectRef, dict[TriggerPair, _Rollout]] = field(default_factory=dict)
    _logged: log.Once = field(default_factory=log.Once)

    def declare(self, meters: Meters) -> None:
        """Declare the counter of triggers that the budget delays."""
        counter = meters.counter(
            "ansible_operator_delayed_dependent_triggers",
            "Changes of dependents in other namespaces that were delayed, because their owner ran too often",
            ["GVK"],
        )
        self.over_budget = lambda gvk: counter.labels(str(gvk)).inc()

    def trigger(self, notification: Notification) -> None:
        """Run an object because of a dependent or a reference, now or later."""
        pair, loop = TriggerPair.of(notification), asyncio.get_running_loop()
        if notification.is_progress:
            rollout = self._rollouts.setdefault(pair.target, {}).setdefault(pair, _Rollout())
            if rollout.timer is None:
                wait = ROLLOUT_WAITS[min(rollout.runs, len(ROLLOUT_WAITS) - 1)]
                rollout.timer = loop.call_later(wait, self._progressed, rollout, pair, notification)
            return
        if notification.is_status or notification.state is None:
            self._end_rollout(pair)
        self._pass(pair, notification)

    def _progressed(self, rollout: _Rollout, pair: TriggerPair, notification: Notification) -> None:
        rollout.timer = None
        rollout.runs += 1
        self._pass(pair, notification)

    def _end_rollout(self, pair: TriggerPair) -> None:
        of_target = self._rollouts.get(pair.target, {})
        rollout = of_target.pop(pair, None)
        if rollout is not None and rollout.timer is not None:
            rollout.timer.cancel()
        if not of_target:
            self._rollouts.pop(pair.target, None)

    def _pass(self, pair: TriggerPair, notification: Notification) -> None:
        loop = asyncio.get_running_loop()
        slowdown = self._loops.slowdown(pair, notification, loop.time())
        if not slowdown.seconds:
            self._wake(notification)
            return
        self._note(pair, notification, slowdown)
        held, due = self._held.get(pair), loop.time() + slowdown.seconds
        if held is not None and held.due <= due:
            return
        if held is not None:
            held.timer.cancel()
        _log.warning(
            "An object is triggered repeatedly; slowing down. Check if the role and another client write the same",
            seconds=round(slowdown.seconds, 3),
            fields=list(slowdown.fields if notification.fields else ()),
            gvk=str(pair.target.gvk),
            **{_relation(notification): f"{notification.source} {notification.what}"},
            **pair.target.key._asdict(),
        )
        self._held[pair] = _Held(due, loop.call_at(due, self._due, pair, notification))

    def forget(self, target: ObjectRef) -> None:
        """Drop the state of a deleted owner."""
        for timer in self._contentions.pop(target, {}).values():
            timer.cancel()
        if target in self._postponed:
            self._postponed.pop(target).cancel()
        for pair in list(self._rollouts.get(target, ())):
            self._end_rollout(pair)
        self._budget.forget(target)

    def _due(self, pair: TriggerPair, notification: Notification) -> None:
        del self._held[pair]
        self._wake(notification)

    def _wake(self, notification: Notification) -> None:
        target, source = notification.target, notification.source
        if notification.reason is not reasons.DEPENDENT or source.key.namespace == target.key.namespace:
            self.wake(target, notification.cause)
        else:
            self._wake_within_budget(target, notification.cause)

    def _wake_within_budget(self, target: ObjectRef, cause: Cause) -> None:
        if target in self._postponed:
            self.over_budget(target.gvk)
            return
        loop = asyncio.get_running_loop()
        seconds = self._budget.spend(target, loop.time())
        if not seconds:
            self.wake(target, cause)
            return
        self.over_budget(target.gvk)
        self._postponed[target] = loop.call_later(seconds, self._spend_again, target, cause)
        if self._logged.is_new(target):
            _log.warning(
                "Dependents in other namespaces trigger an object too often; delaying its runs. Check which client "
                "changes these dependents",
                dependent=cause.details[0],
                gvk=str(target.gvk),
                **target.key._asdict(),
            )

    def _spend_again(self, target: ObjectRef, cause: Cause) -> None:
        del self._postponed[target]
        self._wake_within_budget(target, cause)

    def _note(self, pair: TriggerPair, notification: Notification, slowdown: Slowdown) -> None:
        """Report the start of a contention, and its end after a quiet period."""
        timers = self._contentions.setdefault(pair.target, {})
        if pair in timers:
            timers[pair].cancel()
        else:
            fields = slowdown.fields if notification.fields else ()
            relation = _relation(notification)
            contention = Contention(notification.source, notification.what, fields, notification.by, relation)
            self._report(pair.target, contention)
        loop = asyncio.get_running_loop()
        timers[pair] = loop.call_later(slowdown.over_in, partial(self._quiet, pair))

    def _quiet(self, pair: TriggerPair) -> None:
        timers = self._contentions.get(pair.target, {})
        timers.pop(pair, None)
        if not timers:
            self._contentions.pop(pair.target, None)
            self._report(pair.target, None)

    def _report(self, target: ObjectRef, contention: Contention | None) -> None:
        if target.gvk in self.reports:
            self.reports[target.gvk](target.key, contention)


def _relation(notification: Notification) -> str:
    """Return the word of the reason for the changed object: `dependent` or `reference`."""
    return notification.reason.value.partition(" ")[0]


def _is_status(name: str) -> bool:
    return name.partition(".")[0] == "status"
