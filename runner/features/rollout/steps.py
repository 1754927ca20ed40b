"""Decisions of a rollout: which objects may run the new content, and when a step has ended. Pure.

Rules:
- A step counts the outdated objects that began in this rollout and still exist. It does not count objects that are new,
  had this content before, or were deleted or omitted before they ran.
- A step ends when each of its objects is done. A run that requested another one is not done. A step in which no object
  began needs no pause.
- The first step has the objects with its labels, and ends when they are done, although other objects ran.
- Going back is the fast direction: failed objects do not wait for their step.
- The caller calls `advance` only if no object is unknown: from unknown ones follows no end of a step.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from runner.core.status.conditions import timestamp
from runner.features.rollout.fields import RolloutPolicy
from runner.features.rollout.member import PAUSED, WAITING, Member, Wait
from runner.features.rollout.state import State
from runner.values.objects import first_names

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Fleet:
    """The objects of a watch, as they were read together."""

    members: tuple[Member, ...]
    ran: frozenset[str]
    """Objects whose last run executed the content of the rollout."""
    alive: frozenset[str]
    """Objects that ran it, or that a rollout runs."""
    waiting: tuple[Member, ...]
    """Outdated objects that have not begun, in the order in which they begin."""
    ranks: Mapping[str, int]
    """Their places."""
    limits: tuple[int, ...]

    @classmethod
    def of(cls, policy: RolloutPolicy, state: State, members: Iterable[Member]) -> Fleet:
        """Order the outdated objects: failed ones first, then those of the first step, then by name."""
        present = tuple(sorted(members, key=lambda member: member.key))
        ran = frozenset(member.uid for member in present if member.content == state.content)
        alive = ran | {member.uid for member in present if not member.out}
        order = sorted(
            (member for member in present if member.uid in alive - ran - state.begun and not member.is_new),
            key=lambda member: (not member.is_next, not member.failed, not member.is_first),
        )
        limits = policy.limits(len(present), sum(member.is_first for member in present)) if present else (0,)
        ranks = {member.uid: rank for rank, member in enumerate(order)}
        return cls(present, ran, alive, tuple(order), ranks, limits)


@dataclass(frozen=True, slots=True)
class Turns:
    """Objects that may begin at a moment. `state` can be newer than `fleet`."""

    policy: RolloutPolicy
    state: State
    fleet: Fleet
    now: float
    """Seconds since the epoch."""
    opens: float
    """When the window is open next; `now` if it is open."""
    taken: tuple[int, ...]
    """Ranks of the objects that have begun since the fleet was read."""

    @classmethod
    def of(cls, policy: RolloutPolicy, state: State, fleet: Fleet, now: float) -> Turns:
        """Return the turns at a moment."""
        taken = sorted(fleet.ranks[uid] for uid in state.begun & fleet.ranks.keys())
        return cls(policy, state, fleet, now, policy.opens(now), tuple(taken))

    def wait(self, member: Member) -> Wait | None:
        """Return why an outdated object waits; None if it may run."""
        state = self.state
        if member.uid in state.begun:
            return None
        if member.out:
            return Wait(WAITING, f"Outdated; {member.out}")
        if state.paused:
            return Wait(PAUSED, f"The rollout is paused: {state.paused}")
        place, last = self._place(member), max(len(state.limits) - 1, 0)
        is_first = self._has_first_step and member.is_first
        step = 0 if is_first else next((at for at, limit in enumerate(state.limits) if place < limit), last)
        which = f"step {max(step, state.step + 1 if self._is_later(member) else state.step) + 1} of {last + 1}"
        if self.opens > self.now:
            when = (
                f"opens at {timestamp(self.opens)}" if math.isfinite(self.opens) else "does not open within two weeks"
            )
            return Wait(WAITING, f"Waits for {which}, and for a window, which {when}")
        return None if self.has(member) else Wait(WAITING, f"Waits for {which}")

    def has(self, member: Member) -> bool:
        """Return whether it is the turn of an outdated object, apart from pauses and windows."""
        state = self.state
        if member.is_next or state.ended or (state.goes_back and member.failed):
            return True
        if self._has_first_step and state.step == 0 and member.is_first:
            return True
        return not self._is_later(member) and self._place(member) < state.limit

    def _is_later(self, member: Member) -> bool:
        """Return whether the first step does not contain an object."""
        return self._has_first_step and self.state.step == 0 and not (member.is_first or member.failed)

    @property
    def _has_first_step(self) -> bool:
        return bool(self.policy.labels)

    def _place(self, member: Member) -> int:
        """Return the number of objects that begin before an object."""
        rank = self.fleet.ranks.get(member.uid, len(self.fleet.waiting))
        return len(self.state.begun) + rank - bisect_left(self.taken, rank)


def advance(policy: RolloutPolicy, state: State, fleet: Fleet, now: float) -> State:
    """Return the state after what has happened to the objects. `fleet` must contain all of them."""
    if state.ended:
        return state
    state = _counted(state, fleet)
    if len(state.failed - state.excused) > policy.max_failures and not state.paused:
        named = [str(member.key) for member in fleet.members if member.uid in state.failed - state.excused]
        return replace(state, paused=f"failed or not Ready: {first_names(named, _MOST_NAMED)}")
    if state.paused:
        return state
    waiting = [member for member in fleet.waiting if member.uid not in state.begun]
    turns = Turns.of(policy, state, fleet, now)
    if any(map(turns.has, waiting)) or not all(_is_done(policy, state, member, now) for member in _begun(state, fleet)):
        has_success = bool(state.begun & fleet.ran - state.failed)
        return state if has_success else replace(state, done=0.0)  # another object takes the place of a deleted one
    if not waiting or state.step == len(fleet.limits) - 1:
        return replace(state, ended=True, stable=state.content, begun=frozenset(), ready=frozenset())
    state = replace(state, done=min(state.done or now, now))  # a clock that was set back must not prolong the pause
    is_over = not state.used or now - state.done >= policy.pause
    return replace(state, step=state.step + 1, done=0.0, used=False) if is_over else state


def _counted(state: State, fleet: Fleet) -> State:
    """Return the state with the objects that exist, and with the new failures."""
    present = {member.uid for member in fleet.members}
    ended = [member for member in fleet.members if member.uid in fleet.ran and not member.unfinished]
    ready = state.ready & present | {member.uid for member in ended if math.isfinite(member.ready_since)}
    failing = {member.uid for member in ended if member.failed or (member.unready and member.uid in ready)}
    return replace(
        state,
        limits=fleet.limits,
        step=min(state.step, len(fleet.limits) - 1),
        begun=state.begun & fleet.alive,
        ready=ready,
        failed=state.failed & present | failing,
    )


def _begun(state: State, fleet: Fleet) -> Iterable[Member]:
    return (member for member in fleet.members if member.uid in state.begun and not member.out)


def _is_done(policy: RolloutPolicy, state: State, member: Member, now: float) -> bool:
    """Return whether an object that has begun needs no more time."""
    if member.content != state.content or member.unfinished:
        return False
    return member.uid in state.failed or not policy.ready or now - member.ready_since >= policy.ready
