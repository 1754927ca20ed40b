"""The order of faults in the fault suite."""

from __future__ import annotations

import random
from collections import Counter

from tests.faults.actions import FAULTS
from tests.faults.suite import Plan

DECK = Counter({fault.name: fault.times for fault in FAULTS})


def _names(rounds: int, only: str = "", seed: int = 1) -> list[str]:
    return [fault.name for fault in Plan.of(random.Random(seed), rounds, only).faults]


def test_as_many_rounds_as_faults_cause_each_fault_once() -> None:
    assert Counter(_names(len(FAULTS))) == Counter(dict.fromkeys(DECK, 1))


def test_as_many_rounds_as_the_deck_has_cause_each_fault_as_often_as_the_deck_has_it() -> None:
    assert Counter(_names(DECK.total())) == DECK
    assert Counter(_names(2 * DECK.total())) == DECK + DECK


def test_the_seed_decides_the_order() -> None:
    assert _names(60) == _names(60)
    assert _names(60) != _names(60, seed=2)


def test_a_part_of_a_name_selects_faults() -> None:
    assert set(_names(9, only="etcd")) == {"etcd killed", "etcd paused"}
