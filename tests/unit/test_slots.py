"""Values of features in the types of the core."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass

from runner.values.slots import EMPTY, Slot, Slots

SIZE = Slot[int]("size", 1)
NAMES = Slot[tuple[str, ...]]("names", ())


@dataclass(frozen=True)
class Thing:
    more: Slots = EMPTY


def test_a_slot_has_its_default_until_it_is_set() -> None:
    values = EMPTY.having(SIZE, 2)
    assert (EMPTY.get(SIZE), values.get(SIZE), values.get(NAMES)) == (1, 2, ())
    assert values == EMPTY.having(SIZE, 2) != EMPTY
    assert values.get(Slot("size", 1)) == 1, "two slots of one name are two"


def test_copies_have_the_same_slots() -> None:
    values = EMPTY.having(SIZE, 2).having(NAMES, ("a",))
    assert deepcopy(Thing(values)) == Thing(values)
    assert asdict(Thing(values)) == {"more": {"_values": {SIZE: 2, NAMES: ("a",)}}}
