"""Which request of several kinds starts next, by table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from runner.core.queue.concurrency import ConcurrencyLimit
from runner.core.queue.line import Precedence
from runner.core.queue.queue import Offer, choose

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
