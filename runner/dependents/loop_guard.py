"""Wakes objects, and slows down those that a dependent wakes again and again for the same field, or a reference.

Owns the wakes that are put off: one for each owner and dependent, or object and reference. Says when an object begins
to be slowed down and when that is over, with what is to be told to people.

Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from runner import log
from runner.dependents.ledger import Notification
from runner.dependents.loops import Loops, Slowdown, TriggerPair
from runner.objects import GVK, ObjectKey, ObjectRef

TriggerRun = Callable[[GVK, ObjectKey, str], None]
"""Asks for a run of an owner: its kind as it is watched, its key, and why."""

_MOST_NAMED = 5
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Contention:
    """A dependent or a reference that is changed again and again after an object's runs."""

    ref: ObjectRef
    what: str
    """What happened to it; for people."""
    fields: tuple[str, ...]
    """What of it changed; none for what is no change, or of which no more is known."""
    by: str
    """Who changes it, as far as that is known."""
    is_reference: bool

    @property
    def reason(self) -> str:
        """The same in a word, as conditions and Events have it."""
        return "ReferenceChangedAgain" if self.is_reference else "DependentChangedAgain"

    def sentence(self) -> str:
        """Say it to the owner's people; the same for as long as it goes on."""
        named = ", ".join(self.fields[:_MOST_NAMED]) + (" and more" if len(self.fields) > _MOST_NAMED else "")
        by = f" (by {self.by})" if self.by else ""
        change = f": {named} changes" if named else f" {self.what}"
        return (
            f"{self.ref}{change} repeatedly{by} after this object's runs, so these are delayed. "
            "Change the role or the other client so that only one of them writes it."
        )


OnContention = Callable[[GVK, ObjectKey, Contention | None], None]
"""Is told that an owner is slowed down, or (None) no longer."""


@dataclass(slots=True)
class _Held:
    due: float
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class LoopGuard:
    """See the module."""

    wake: TriggerRun
    """For a dependent."""
    wake_for_reference: TriggerRun
    contended: OnContention
    _loops: Loops = field(default_factory=Loops)
    _held: dict[TriggerPair, _Held] = field(default_factory=dict)
    _contentions: dict[ObjectRef, dict[TriggerPair, asyncio.TimerHandle]] = field(default_factory=dict)

    def tell(self, kind: GVK, news: Notification) -> None:
        """Wake an owner because of its dependent, now or later."""
        self._tell(TriggerPair(news.target, kind, news.key), news)

    def tell_of_reference(self, kind: GVK, news: Notification) -> None:
        """Wake an object because of what it names, now or later."""
        self._tell(TriggerPair(news.target, kind, news.key, is_reference=True), news)

    def _tell(self, pair: TriggerPair, news: Notification) -> None:
        loop = asyncio.get_running_loop()
        why = f"{pair.kind.kind} {news.key} {news.what}"
        slowdown = self._loops.slowdown(pair, news, loop.time())
        if not slowdown.seconds:
            self._wake(pair, why)
            return
        self._note(pair, news, slowdown)
        held, due = self._held.get(pair), loop.time() + slowdown.seconds
        if held is not None and held.due <= due:
            return
        if held is not None:
            held.timer.cancel()
        _log.warning(
            "An object is triggered repeatedly; slowing down. Check if the role and another client write the same",
            seconds=round(slowdown.seconds, 3),
            fields=list(slowdown.fields if news.fields else ()),
            gvk=str(pair.target.gvk),
            **{"reference" if pair.is_reference else "dependent": why},
            **pair.target.key._asdict(),
        )
        self._held[pair] = _Held(due, loop.call_at(due, self._due, pair, why))

    def forget(self, target: ObjectRef) -> None:
        """An owner is gone."""
        for timer in self._contentions.pop(target, {}).values():
            timer.cancel()

    def _due(self, pair: TriggerPair, why: str) -> None:
        del self._held[pair]
        self._wake(pair, why)

    def _wake(self, pair: TriggerPair, why: str) -> None:
        wake = self.wake_for_reference if pair.is_reference else self.wake
        wake(pair.target.gvk, pair.target.key, why)

    def _note(self, pair: TriggerPair, news: Notification, slowdown: Slowdown) -> None:
        """Tell of it when it begins, and when it has been quiet for long enough."""
        timers = self._contentions.setdefault(pair.target, {})
        if pair in timers:
            timers[pair].cancel()
        else:
            by = news.state.by if news.state is not None else ""
            fields = slowdown.fields if news.fields else ()
            contention = Contention(ObjectRef(pair.kind, pair.key, news.uid), news.what, fields, by, pair.is_reference)
            self.contended(pair.target.gvk, pair.target.key, contention)
        loop = asyncio.get_running_loop()
        timers[pair] = loop.call_later(slowdown.over_in, partial(self._quiet, pair))

    def _quiet(self, pair: TriggerPair) -> None:
        timers = self._contentions.get(pair.target, {})
        timers.pop(pair, None)
        if not timers:
            self._contentions.pop(pair.target, None)
            self.contended(pair.target.gvk, pair.target.key, None)
