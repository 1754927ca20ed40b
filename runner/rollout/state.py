"""State of a rollout, and its decisions: which objects may run the new content, and when a step has ended. Pure.

The condition `Updated` of an object contains the digest of the content that its last run executed. An object is
outdated if that is not the content of the rollout. `State.begun` contains each outdated object before it runs, so that
the number of these objects never exceeds the limit of the step.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from runner.objects import (
    Object,
    ObjectKey,
    annotations_of,
    first_names,
    is_deleting,
    is_paused,
    key_of,
    metadata,
    plan_requested,
    uid_of,
)
from runner.status import kstatus
from runner.status.conditions import Condition, conditions_of, find, make, timestamp
from runner.unchanged.last_run import digest
from runner.watches.policy import RunMode, mode_of, strictest
from runner.watches.rollout_fields import RolloutPolicy

ROLLOUT = "ansible.sdk.operatorframework.io/rollout"
"""Annotation: `hold` keeps an object out of rollouts, `now` lets it run next."""
UPDATED, FAILED, WAITING, PAUSED = "Updated", "Failed", "Waiting", "RolloutPaused"
"""Condition of the objects of a watch with `rollout`, and its reasons while it is false."""
BY_USER = "a user paused it"
UNUSABLE = "it cannot run until it is corrected"
_CONTENT = re.compile(r"content ([0-9a-f]{24})\b")
_UID = 13
"""Characters of a UID in the state, which are random."""
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Member:
    """An object of a watch with `rollout`."""

    key: ObjectKey
    uid: str
    """The first characters."""
    content: str
    """Content of its last run; empty if it is not known."""
    failed: bool
    """Whether that run failed."""
    unready: bool
    ready_since: float
    """Seconds since the epoch; infinite if it is not Ready."""
    out: str
    """Why no rollout runs it; empty if one does."""
    is_next: bool
    """Whether its annotation lets it run next."""
    is_first: bool
    """Whether it has the labels of the first step."""
    is_new: bool
    """Whether no run has ended yet."""
    is_changed: bool | None
    """Whether a user changed it since its last run; None if the status does not contain this."""

    @classmethod
    def of(cls, obj: Object, labels: Mapping[str, str], mode: RunMode) -> Member:
        """Read an object. `mode` is that of the watch."""
        conditions, meta = conditions_of(obj), metadata(obj)
        updated, failure = find(conditions, UPDATED) or {}, find(conditions, "Failure") or {}
        successful = find(conditions, "Successful") or {}
        ready = find(conditions, kstatus.READY) or successful
        content = _CONTENT.search(str(updated.get("message")))
        annotation, own = annotations_of(obj).get(ROLLOUT), meta.get("labels") or {}
        observed, generation = failure.get("observedGeneration"), meta.get("generation")
        wanted = strictest(mode_of(plan_requested(obj)[0]) or mode, mode)
        reasons = {
            "it is being deleted": is_deleting(obj),
            f"the annotation {ROLLOUT} holds it": annotation == "hold",
            "it is paused": is_paused(obj),
            "its mode is plan": wanted == "plan",
            UNUSABLE: (failure.get("status"), failure.get("reason")) == ("True", "Unusable"),
        }
        since = max(_moment(ready), _moment(updated)) if ready.get("status") == "True" else math.inf
        return cls(
            key=key_of(obj),
            uid=uid_of(obj)[:_UID],
            content=content[1] if content else "",
            failed=(updated.get("status"), updated.get("reason")) == ("False", FAILED),
            unready=ready.get("status") == "False",
            ready_since=since,
            out=next((why for why, holds in reasons.items() if holds), ""),
            is_next=annotation == "now",
            is_first=bool(labels) and labels.items() <= own.items(),
            is_new=not failure and not successful,
            is_changed=observed < generation if isinstance(observed, int) and isinstance(generation, int) else None,
        )


def _moment(condition: Condition) -> float:
    try:
        return datetime.fromisoformat(str(condition.get("lastTransitionTime"))).timestamp()
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class State:
    """State of a rollout, in a ConfigMap."""

    content: str = ""
    step: int = 0
    done: float = 0.0
    """When all objects of the step were done, in seconds since the epoch; 0: they are not."""
    paused: str = ""
    """Why no outdated object begins; empty if the rollout is not paused."""
    ended: bool = False
    salt: str = ""
    """Differs after each restart of the rollout."""
    limits: tuple[int, ...] = ()
    """Number of objects after each step, as computed last."""
    begun: frozenset[str] = field(default_factory=frozenset)
    """Objects that may run the new content."""
    ready: frozenset[str] = field(default_factory=frozenset)
    """Objects that were Ready after their run."""
    failed: frozenset[str] = field(default_factory=frozenset)
    excused: frozenset[str] = field(default_factory=frozenset)
    """Failed objects at the time of the last `resume`."""

    @classmethod
    def parse(cls, text: str) -> State | None:
        """Read the ConfigMap's text; None if it is invalid."""
        try:
            found = orjson.loads(text)
            fields: dict[str, Any] = {name: type(getattr(_NEW, name))(found[name]) for name in _PLAIN}
            fields |= {name: frozenset(str(found[name]).split()) for name in _SETS}
            return cls(**fields, limits=tuple(map(int, found["limits"])))
        except (KeyError, TypeError, ValueError):
            return None

    def written(self) -> str:
        """Return the ConfigMap's text."""
        sets = {name: " ".join(sorted(getattr(self, name))) for name in _SETS}
        fields: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        return orjson.dumps({**fields, "limits": self.limits, **sets}, option=orjson.OPT_INDENT_2).decode()

    def target(self, content: str) -> str:
        """Return the digest that objects must have, for the digest of the installed content."""
        return digest([content, self.salt]) if self.salt else content

    def begin(self, target: str) -> State:
        """Return the state at the start of a rollout. Only the pause of a user lasts."""
        return State(target, salt=self.salt, paused=BY_USER if self.paused == BY_USER else "")

    def resumed(self) -> State:
        """Return the state after a user has resumed the rollout."""
        return replace(self, paused="", excused=self.failed)

    @property
    def limit(self) -> int:
        """Number of objects that may have run the new content now."""
        if self.ended:
            return sys.maxsize
        return self.limits[min(self.step, len(self.limits) - 1)] if self.limits else 0


_NEW = State()
_SETS = ("begun", "ready", "failed", "excused")
_PLAIN = ("content", "step", "done", "paused", "ended", "salt")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The objects of a watch, as they were read together."""

    members: tuple[Member, ...]
    ran: frozenset[str]
    """Objects whose last run executed the content of the rollout."""
    ranks: Mapping[str, int]
    """Places of the outdated objects that have not begun."""
    limits: tuple[int, ...]

    @classmethod
    def of(cls, policy: RolloutPolicy, state: State, members: Iterable[Member]) -> Fleet:
        """Order the outdated objects: failed ones first, then those of the first step, then by name."""
        present = tuple(sorted(members, key=lambda each: each.key))
        ran = frozenset(each.uid for each in present if each.content == state.content)
        order = sorted(
            (each for each in present if each.uid not in ran | state.begun and not each.out and not each.is_new),
            key=lambda each: (not each.is_next, not each.failed, not each.is_first),
        )
        limits = policy.limits(len(present), sum(each.is_first for each in present)) if present else (0,)
        return cls(present, ran, {each.uid: rank for rank, each in enumerate(order)}, limits)

    def used(self, state: State) -> int:
        """Count the objects that ran the new content, or may run it."""
        return len(self.ran | state.begun)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an outdated object does not run yet."""

    reason: str
    message: str

    def condition(self, content: str) -> Condition:
        """Return the condition of an object whose last run executed `content`."""
        return make(UPDATED, "False", self.reason, f"{self.message}; last run: content {content or 'unknown'}")


def may_run(policy: RolloutPolicy, state: State, fleet: Fleet, member: Member, now: float) -> Wait | None:
    """Return why an outdated object waits; None if it may run. `now` is in seconds since the epoch."""
    if member.uid in state.begun:
        return None
    if member.out:
        return Wait(WAITING, f"Outdated; {member.out}")
    if state.paused:
        return Wait(PAUSED, f"The rollout is paused: {state.paused}")
    # The place is that at the time of the fleet, although some of the objects before it have begun since.
    place = len(fleet.ran | (state.begun - fleet.ranks.keys())) + fleet.ranks.get(member.uid, len(fleet.members))
    last = len(state.limits) - 1
    step = next((number for number, limit in enumerate(state.limits) if place < limit), max(last, 0))
    opens, which = policy.opens(now), f"step {max(step, state.step) + 1} of {last + 1}"
    if opens > now:
        when = f"opens at {timestamp(opens)}" if math.isfinite(opens) else "does not open within two weeks"
        return Wait(WAITING, f"Waits for {which}, and for a window, which {when}")
    if member.is_next or state.ended or (place < state.limit and fleet.used(state) < state.limit):
        return None
    return Wait(WAITING, f"Waits for {which}")


def advance(policy: RolloutPolicy, state: State, fleet: Fleet, now: float) -> State:
    """Return the state after what has happened to the objects."""
    if state.ended:
        return state
    state = replace(state, limits=fleet.limits, step=min(state.step, len(fleet.limits) - 1))
    current = [each for each in fleet.members if each.content == state.content]
    ready = state.ready | {each.uid for each in current if math.isfinite(each.ready_since)}
    failing = {each.uid for each in current if each.failed or (each.unready and each.uid in ready)}
    state = replace(state, ready=ready, failed=state.failed | failing)
    if len(state.failed - state.excused) > policy.max_failures and not state.paused:
        named = [str(each.key) for each in fleet.members if each.uid in state.failed - state.excused]
        return replace(state, paused=f"failed or not Ready: {first_names(named, _MOST_NAMED)}")
    if state.paused:
        return state
    if not state.done and _is_pending(policy, state, fleet, now):
        return state
    state = replace(state, done=min(state.done or now, now))  # a clock that was set back must not prolong the pause
    is_last = state.step == len(fleet.limits) - 1
    if is_last:
        return replace(state, ended=True, begun=frozenset(), ready=frozenset())
    return replace(state, step=state.step + 1, done=0.0) if now - state.done >= policy.pause else state


def _is_pending(policy: RolloutPolicy, state: State, fleet: Fleet, now: float) -> bool:
    """Return whether an object of the step must still run, or become Ready."""
    if fleet.ranks and fleet.used(state) < state.limit:
        return True
    for each in fleet.members:
        if each.out:
            continue
        if each.content != state.content:
            if each.uid in state.begun:
                return True
        elif each.uid not in state.failed and policy.ready and not now - each.ready_since >= policy.ready:
            return True
    return False
