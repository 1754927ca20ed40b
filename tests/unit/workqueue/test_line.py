"""Requests of one urgency: round-robin by namespace once they are due."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from runner.core.queue import reasons
from runner.core.queue.line import Line, Turns, Waiting
from runner.core.queue.request import Cause
from runner.values.objects import ObjectKey


def _entry(rank: float) -> Waiting:
    return Waiting(Cause.of(reasons.CHANGED, ()), rank, rank)


def _drain(line: Line, now: float) -> list[ObjectKey]:
    taken = []
    while line.first(now) is not None:
        taken.append(line.pop(now)[0])
    return taken


def test_namespaces_with_due_requests_take_turns() -> None:
    line = Line(Turns())
    for number in range(60):
        line.push(ObjectKey("tenant", str(number)), _entry(number))
    assert line.pop(100.0)[0].namespace == "tenant"
    line.push(ObjectKey("late", "a"), _entry(99.0))
    line.push(ObjectKey("late", "b"), _entry(99.0))
    line.push(ObjectKey("later", "a"), _entry(99.5))
    order = [key.namespace for key in _drain(line, 100.0)]
    assert order[:5] == ["late", "later", "tenant", "late", "tenant"]
    assert Counter(order) == {"tenant": 59, "late": 2, "later": 1}


def test_a_namespace_that_was_served_just_now_waits_for_its_turn_when_it_returns() -> None:
    line = Line(Turns())
    for namespace in ("a", "b", "c"):
        line.push(ObjectKey(namespace, "1"), _entry(0.0))
    assert line.pop(1.0)[0].namespace == "a"
    line.push(ObjectKey("a", "2"), _entry(0.0))
    assert [key.namespace for key in _drain(line, 1.0)] == ["b", "c", "a"]


def test_requests_that_are_not_due_are_served_by_rank_alone() -> None:
    line = Line(Turns())
    for number, namespace in enumerate("aaabbc"):
        line.push(ObjectKey(namespace, str(number)), _entry(10.0 + number))
    assert [key.name for key in _drain(line, 0.0)] == ["0", "1", "2", "3", "4", "5"]


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


def test_an_empty_line_has_no_first_request() -> None:
    line = Line(Turns())
    dead = _entry(0.0)
    line.push(ObjectKey("a", "1"), dead)
    dead.is_dead = True
    assert line.first(1.0) is None
    with pytest.raises(IndexError):
        line.pop(1.0)


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
