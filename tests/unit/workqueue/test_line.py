"""Requests of one urgency: round-robin by namespace once they are due."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import ConcurrencyLimit, Line, Precedence, Turns, Waiting
from runner.core.queue.queue import Offer, choose
from runner.core.queue.reasons import Cause
from runner.values.objects import ObjectKey


def _entry(rank: float) -> Waiting:
    return Waiting(Cause.of(reasons.CHANGED, ()), rank, rank)


def _drain(line: Line, now: float) -> list[ObjectKey]:
    taken = []
    while line.first(now) is not None:
        taken.append(line.pop(now)[0])
    return taken


def test_turns_of_one_kind_count_for_another() -> None:
    turns = Turns()
    one, other = Line(turns), Line(turns)
    one.push(ObjectKey("tenant", "a"), _entry(0.0))
    one.pop(1.0)
    one.push(ObjectKey("tenant", "b"), _entry(0.0))
    other.push(ObjectKey("late", "a"), _entry(0.9))
    first, second = one.first(1.0), other.first(1.0)
    assert first is not None
    assert second is not None
    assert second < first


class _Model:
    """The rule itself, in linear time."""

    def __init__(self) -> None:
        self.waiting: dict[ObjectKey, Waiting] = {}
        self.turns: dict[str, int] = {}
        self.served = 0

    def allowed(self, now: float) -> set[str]:
        """Namespaces that may be served next."""
        lowest: dict[str, float] = {}
        for key, entry in self.waiting.items():
            lowest[key.namespace] = min(entry.rank, lowest.get(key.namespace, entry.rank))
        due = {namespace: self.turns.get(namespace, 0) for namespace, rank in lowest.items() if rank <= now}
        values: dict[str, float] = dict(due) if due else lowest
        return {namespace for namespace, value in values.items() if value == min(values.values())}

    def take(self, key: ObjectKey) -> None:
        entry = self.waiting.pop(key)
        same = [other for other in self.waiting if other.namespace == key.namespace]
        assert all(self.waiting[other].rank >= entry.rank for other in same), "not the lowest rank of its namespace"
        self.served += 1
        self.turns[key.namespace] = self.served


@pytest.mark.parametrize("seed", range(30))
def test_any_history_follows_the_rule_and_loses_nothing(seed: int) -> None:
    rng, line, model, now = random.Random(seed), Line(Turns()), _Model(), 0.0
    for _ in range(600):
        key = ObjectKey(rng.choice("abcdef"), str(rng.randrange(12)))
        action = rng.random()
        if action < 0.5:
            entry = _entry(now + rng.choice((0.0, 1.0, 5.0, 60.0)) + rng.random())
            if key in model.waiting:
                model.waiting[key].is_dead = True
            model.waiting[key] = entry
            line.push(key, entry)
        elif action < 0.55 and key in model.waiting:
            model.waiting.pop(key).is_dead = True
        elif action < 0.65:
            now += rng.choice((0.1, 1.0, 30.0))
        elif model.waiting:
            allowed = model.allowed(now)
            taken, entry = line.pop(now)
            assert taken.namespace in allowed
            assert model.waiting[taken] is entry
            model.take(taken)
        assert (line.first(now) is None) == (not model.waiting)
    rest = _drain(line, now)
    assert sorted(rest) == sorted(model.waiting)


CHANGE = Offer(cast("Any", None), Precedence(is_early=False, turn=3, rank=5.0), background=False, is_first=False)
EARLY_CHANGE = replace(CHANGE, precedence=Precedence(is_early=True, turn=0, rank=20.0))
RETRY = replace(CHANGE, background=True)
EARLY_RETRY = replace(EARLY_CHANGE, background=True)
SOONER = Precedence(is_early=False, turn=2, rank=9.0)
FREE, RESERVED, FULL = ConcurrencyLimit(4, 3), ConcurrencyLimit(4, 3, 3, 3), ConcurrencyLimit(4, 3, 4, 2)
AFTER_BACKGROUND = ConcurrencyLimit(4, 3, 1, 1, _after_background=True)

CASES: dict[str, tuple[ConcurrencyLimit, list[Offer], Offer | None]] = {
    "nothing waits": (FREE, [], None),
    "the namespace that was served least recently": (
        FREE,
        [CHANGE, replace(CHANGE, precedence=SOONER)],
        replace(CHANGE, precedence=SOONER),
    ),
    "due background work before a change": (FREE, [CHANGE, RETRY], RETRY),
    "but not twice in a row": (AFTER_BACKGROUND, [CHANGE, RETRY], CHANGE),
    "twice in a row if no change waits": (AFTER_BACKGROUND, [RETRY], RETRY),
    "a due change before background work that is not due": (FREE, [EARLY_RETRY, CHANGE], CHANGE),
    "the lower rank if nothing is due": (
        FREE,
        [EARLY_RETRY, replace(EARLY_CHANGE, precedence=EARLY_CHANGE.precedence._replace(rank=9.0))],
        replace(EARLY_CHANGE, precedence=EARLY_CHANGE.precedence._replace(rank=9.0)),
    ),
    "a reserved worker only for a change": (RESERVED, [RETRY, EARLY_CHANGE], EARLY_CHANGE),
    "background work waits for a reserved worker": (RESERVED, [RETRY], None),
    "all workers are busy": (FULL, [CHANGE, RETRY], None),
    "a kind without a run starts one nevertheless": (
        FULL,
        [CHANGE, replace(RETRY, is_first=True)],
        replace(RETRY, is_first=True),
    ),
}


@pytest.mark.parametrize(("limit", "offers", "expected"), CASES.values(), ids=CASES)
def test_the_next_request(limit: ConcurrencyLimit, offers: list[Offer], expected: Offer | None) -> None:
    for order in (offers, offers[::-1]):
        assert choose(order, limit) == expected
