"""Rollout of one watch: outdated objects wait for their step, and the loop that ends steps.

Each start of an outdated object is a write of the state, which fails if another replica or a user changed the state
meanwhile. A replica starts a rollout only when its own content is new to it: during an upgrade, replicas with
other content must not compete.

While it is unknown which objects exist, no step ends and no outdated object begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from runner.base import log, page
from runner.base.credentials import auth
from runner.base.events.bodies import ApiEvent, EventType
from runner.base.page import Node, PageSections, Section
from runner.core.content.files import ContentDigest
from runner.core.engine.job import Outcome
from runner.core.kube.cache import Summary
from runner.core.kube.client import Selection
from runner.core.kube.meaning import Request
from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.decisions import Done, RequeueAfter
from runner.core.reconcile.feature import Kind, Part
from runner.core.reconcile.hooks import (
    NOTHING,
    REQUEST_BACKOFF,
    UP_TO_DATE,
    FinishedRun,
    Hooks,
    RequestFailedError,
    Skip,
)
from runner.core.status.conditions import find, make
from runner.core.status.report import StatusReport
from runner.features.rollout.feature import ROLLOUT
from runner.features.rollout.fields import ROLLOUT_POLICY, RolloutPolicy
from runner.features.rollout.member import FAILED, IN_PROGRESS, UNUSABLE, WAITING, Member, Wait, not_updated, updated
from runner.features.rollout.state import RolloutStore, State
from runner.features.rollout.steps import Fleet, Turns, advance
from runner.values.errors import ApiError, ApiUnavailableError, ConflictError
from runner.values.objects import GVK, ObjectKey, conditions_of
from runner.values.slots import Slot

Progress: TypeAlias = Callable[[], tuple[State, Fleet] | None]
"""Returns the state and the objects of a rollout; None while they are not known."""

_MOST_NAMES = 5
_COLUMNS = (
    ("Kind", ""),
    ("Step", ""),
    ("Objects after each step", ""),
    ("Updated", "number"),
    ("Outdated", "number"),
    ("State", ""),
    ("Stopped by", ""),
)


@dataclass(frozen=True, slots=True)
class RolloutTable(Part):
    """The rollouts of all kinds."""

    kinds: dict[GVK, Progress] = field(default_factory=dict)

    def sections(self) -> PageSections:
        """Return what the page shows."""
        return PageSections(overview=self._overview)

    def _overview(self) -> Section | None:
        rows = [_row(gvk, *current) for gvk, progress in self.kinds.items() if (current := progress()) is not None]
        return page.section("Rollouts", page.table("Rollouts", _COLUMNS, rows)) if rows else None


def _row(gvk: GVK, state: State, fleet: Fleet) -> list[Node]:
    """Return the step, its size and its state, and the objects that stopped the rollout."""
    stopping = [member.key for member in fleet.members if member.uid in state.failed - state.excused]
    outdated = sum(not member.is_new for member in fleet.members if member.uid not in fleet.ran)
    going: Node = "ended" if state.ended else "in progress"
    if state.paused:
        going = [page.element("tag", "paused"), " ", page.element("isolated", state.paused)]
    return [
        gvk.kind,
        "ended" if state.ended else f"{state.step + 1} of {len(state.limits)}",
        ", ".join(map(str, state.limits)),
        str(len(fleet.ran)),
        str(outdated),
        going,
        [[page.link(gvk, key), " "] for key in stopping[:_MOST_NAMES]],
    ]


_POLL = 5.0
"""Seconds between two reads of the state, which commands and other replicas change."""
_TICK = 0.1
_LOAD = 10
"""A look at all objects takes at most this part of the time."""
_BATCH = 100
"""Objects to parse without a break."""
_CONFLICTS = 20
_UNSYNCED = 0.2
_NO_WAIT = Wait(WAITING, "")
_OTHER_CONTENT = Wait(WAITING, "Waits for the rollout of other content")
_CONTENT = Slot("content of a rollout", "")
"""Digest of the content that the run executes; empty if it is not recorded."""


class Rollout(Hooks):
    """Rollout of one watch's content."""

    def __init__(
        self,
        scope: WatchScope,
        policy: RolloutPolicy,
        store: RolloutStore,
        executed: ContentDigest,
        run: Callable[[ObjectKey, RunReason], None],
    ) -> None:
        """`run` requests the run of an object."""
        self._run = run
        self._scope = scope
        self._policy = policy
        self._store = store
        self._executed = executed
        self._state: State | None = None
        self._fleet: Fleet | None = None
        self._members: dict[ObjectKey, tuple[Summary, Member]] = {}
        self._waiting: dict[ObjectKey, Wait] = {}
        self._target = ""
        """Content that this process rolls out."""
        self._former: str | None = None
        """Content of the rollout when this process read the state first."""
        self._writes = asyncio.Lock()
        self._gauges = [
            scope.metrics.gauge("ansible_operator_rollout_outdated", "Objects that did not run the content", ["GVK"]),
            scope.metrics.gauge("ansible_operator_rollout_step", "Step of the rollout, counted from 1", ["GVK"]),
            scope.metrics.gauge("ansible_operator_rollout_paused", "Whether the rollout is paused", ["GVK"]),
        ]
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        scope.registry.subscribe(lambda key: self._waiting.pop(key, None))

    def progress(self) -> tuple[State, Fleet] | None:
        """Return state and objects for the status page; None while they are not known."""
        return (self._state, self._fleet) if self._state is not None and self._fleet is not None else None

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Let an outdated object wait, unless its step has come or another client requires the run."""
        if attempt.executes.finalizing or attempt.overrides.mode == "plan":
            return attempt
        try:
            state = self._state or await self._load()
            target = state.target(await self._executed.digest())
            member = Member.of(attempt.obj, self._policy.labels, self._scope.watch.mode)
            if attempt.resumed is not None:
                return self._resumed(attempt, member, state, target)
            attempt = _executing(attempt, target)
            if member.content == target or member.is_new:
                return _unskipped(attempt) if member.waits else attempt  # its condition is outdated
            return await self._outdated(attempt, member)
        except (ApiError, ApiUnavailableError) as error:
            if attempt.resumed is not None:  # its result must not wait; another run follows
                self._waiting.setdefault(attempt.key, _NO_WAIT)
                return attempt
            raise RequestFailedError(Request.ROLLOUT, error) from error

    def _resumed(self, attempt: Attempt, member: Member, state: State, target: str) -> Attempt:
        """Return an attempt whose run an earlier operator began, with its content if this is certain.

        Each run of an object since it began in this rollout has the content of it. Any other one can have executed
        other content, for example before the operator went back to this one: another run follows.
        """
        if state.content == target and member.uid in state.begun:
            return _executing(attempt, target)
        if {member.content, self._former} != {target}:
            self._waiting.setdefault(attempt.key, _NO_WAIT)
        return attempt

    async def _outdated(self, attempt: Attempt, member: Member) -> Skip | Attempt:
        reason = attempt.request.reason
        # Without generations in the conditions, the reason decides.
        is_changed = reason is reasons.CHANGED if member.is_changed is None else member.is_changed
        is_due = is_changed or reason.is_required
        if not is_due and self._fleet is None and self._scope.informer.unknown() is None:
            return Skip(RequeueAfter(_UNSYNCED, ROLLOUT))
        if reason.is_check:  # a check with other content would find differences that are no drift
            self._waiting.setdefault(attempt.key, _NO_WAIT)
            return Skip(Done(None))
        wait = await self._start(member, attempt.more.get(_CONTENT), is_due=is_due)
        if wait is None:
            self._waiting.pop(attempt.key, None)
            return _unskipped(attempt)
        self._waiting[attempt.key] = wait
        conditions = [wait.condition(member.content, failed=member.failed)]
        if member.out == UNUSABLE:  # the features before this one have accepted the object
            conditions.append(make("Failure", "False", wait.reason, ""))
        running = find(conditions_of(attempt.obj), "Running") or {}
        if (running.get("status"), running.get("reason")) == ("True", "Running"):  # of an operator that was killed
            conditions.append(make("Running", "False", wait.reason, ""))
        return Skip(Done(None), StatusReport(tuple(conditions)))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Record the content that the run executed."""
        result, content = run.result, attempt.more.get(_CONTENT)
        if not content or attempt.is_stopped or result.lost or result.outcome is Outcome.CANCELED:
            return NOTHING
        if self._target not in {"", content}:  # it was edited during the run: until now, the object was up to date
            self._waiting.setdefault(attempt.key, _NO_WAIT)
        if result.outcome is not Outcome.SUCCEEDED:
            return StatusReport((not_updated(FAILED, content),))
        if result.unfinished:
            return StatusReport((not_updated(IN_PROGRESS, content),))
        return StatusReport((updated(attempt.obj, content, time.time()),))

    async def sweep(self) -> None:
        """Follow the rollout: end its steps, and run the objects whose step has come."""
        loop = asyncio.get_running_loop()
        read_at, seen = -_POLL, -1
        backoff, delay, problem = 0, 0.0, ""
        while True:
            try:
                if loop.time() - read_at >= _POLL:
                    async with self._writes:
                        await self._load()
                    read_at = loop.time()
                elif self._scope.informer.revision == seen:
                    await asyncio.sleep(_TICK)
                    continue
                began, seen = loop.time(), self._scope.informer.revision
                if self._scope.informer.unknown() is None:
                    await self._follow()
                delay, backoff, problem = (loop.time() - began) * _LOAD, 0, ""
            except ConflictError:
                read_at = -_POLL
            except (ApiError, ApiUnavailableError) as error:
                delay, backoff = REQUEST_BACKOFF.after(backoff), backoff + 1
                if problem != (problem := str(error)):
                    self._log.warning("Cannot store the state of the rollout; retrying", error=problem)
            await asyncio.sleep(max(delay, _TICK))

    async def _load(self) -> State:
        self._state = await self._store.load()
        self._former = self._state.content if self._former is None else self._former
        return self._state

    async def _start(self, member: Member, target: str, *, is_due: bool) -> Wait | None:
        """Store that an outdated object runs, or return why it waits. `is_due`: it runs in any case."""
        async with self._writes:
            for _ in range(_CONFLICTS):
                state = self._state or await self._load()
                if state.content != target:  # also if the content was edited after the last look
                    return None if is_due else _OTHER_CONTENT
                wait = None if is_due else self._wait(state, member)
                if wait is not None or member.uid in state.begun:
                    return wait
                begun = state.started(member.uid)
                try:
                    await self._store.save(begun)
                except ConflictError:
                    await self._load()
                else:
                    self._state = begun
                    return None
        raise ConflictError("the state of the rollout changes all the time", status=409)

    def _wait(self, state: State, member: Member) -> Wait | None:
        if (unknown := self._scope.informer.unknown()) is not None:
            return Wait(WAITING, f"Waits until all objects are known: {unknown}")
        if state.content != self._target or self._fleet is None:
            return _OTHER_CONTENT
        return Turns.of(self._policy, state, self._fleet, time.time()).wait(member)

    async def _follow(self) -> None:
        content = await self._executed.digest()
        members = await self._look()
        async with self._writes:
            old = state = self._state or await self._load()
            target = state.target(content)
            if state.content != target and (target != self._target or not state.content):
                state = state.begin(
                    target, (member.uid for member in members if member.content == target and member.failed)
                )
            fleet = Fleet.of(self._policy, state, members)
            if state.content == target and self._scope.leadership.leads():
                while (later := advance(self._policy, state, fleet, time.time())) != state:
                    state = later
                state = replace(state, confirmed=state.asked)
            if state != old:
                await self._store.save(state)
            renewed = self._target not in {"", target}
            self._target, self._fleet, self._state = target, fleet, state
        self._report(fleet, old, state)
        turns = Turns.of(self._policy, state, fleet, time.time())
        for member in sorted(members, key=lambda candidate: fleet.ranks.get(candidate.uid, len(members))):
            # Content that is renewed in a running operator, by a restart or an edit, has queued no object.
            is_unqueued = renewed and member.content != target and self._scope.leadership.leads()
            wait = self._waiting.get(member.key, _NO_WAIT if is_unqueued else None)
            if wait is not None and wait != (turns.wait(member) if state.content == target else _OTHER_CONTENT):
                self._waiting.pop(member.key, None)  # another request during its run would run it twice
                self._run(member.key, ROLLOUT)

    async def _look(self) -> list[Member]:
        """Return all objects. Only changed ones are parsed."""
        informer, before = self._scope.informer, self._members
        self._members, parsed = {}, 0
        for key in informer.all_keys():
            summary = informer.summary(key)
            if summary is None or summary.deleting:
                continue
            entry = before.get(key)
            if entry is None or entry[0] is not summary:
                obj = informer.get(key)
                if obj is None:
                    continue
                entry, parsed = (summary, Member.of(obj, self._policy.labels, self._scope.watch.mode)), parsed + 1
                if parsed % _BATCH == 0:
                    await asyncio.sleep(0)
            self._members[key] = entry
        return [member for _, member in self._members.values()]

    def _report(self, fleet: Fleet, old: State, new: State) -> None:
        """Write Events about what has changed, and the metrics."""
        gvk, place = self._scope.watch.gvk, f"step {new.step + 1} of {len(new.limits)}"
        outdated = sum(member.content != new.content and not member.is_new for member in fleet.members)
        for gauge, value in zip(self._gauges, (outdated, new.step + 1, bool(new.paused)), strict=True):
            gauge.labels(str(gvk)).set(value)
        if new.paused not in {"", old.paused}:
            self._record("Warning", "RolloutPaused", f"Paused at {place}: {new.paused}")
        elif new.ended and not old.ended:
            self._record("Normal", "RolloutEnded", f"All steps have ended; {outdated} objects are outdated")
        elif not new.ended and (new.content, new.step) != (old.content, old.step):
            self._record("Normal", "RolloutStep", f"Begins {place}: {new.limit} of {len(fleet.members)} objects")

    def _record(self, kind: EventType, reason: str, note: str) -> None:
        self._log.info("Rollout", reason=reason, detail=note)
        self._scope.events.record(ApiEvent(self._store.ref, None, kind, reason, "Rollout", note))


def _executing(attempt: Attempt, content: str) -> Attempt:
    """Return an attempt whose run executes this content."""
    more = attempt.more.having(_CONTENT, content)
    return replace(attempt, more=more.having(UP_TO_DATE, lambda: (updated(attempt.obj, content, time.time()),)))


def _unskipped(attempt: Attempt) -> Attempt:
    """Return an attempt with a reason that `skipUnchanged` does not skip."""
    if not attempt.request.reason.is_skippable:
        return attempt
    return replace(attempt, request=replace(attempt.request, reason=ROLLOUT))


def of_kind(kind: Kind) -> Rollout | None:
    """Return the rollout of a kind, which the status page shows; None if its watch has none."""
    scope, watch, settings = kind.scope, kind.scope.watch, kind.operator.settings
    policy = watch.more.get(ROLLOUT_POLICY)
    if policy is None:
        return None
    space = auth.OwnNamespaces.of_process(settings.leader_election_namespace).others or "default"
    selection = Selection(labels=watch.selector, fields=watch.field_selector)
    store = RolloutStore(kind.operator.client, space, watch.gvk, settings.namespaces, selection)
    rollout = Rollout(scope, policy, store, kind.executed, kind.queue.add)
    kind.operator.part(RolloutTable).kinds[watch.gvk] = rollout.progress
    return rollout
