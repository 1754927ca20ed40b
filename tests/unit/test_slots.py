"""Optional data of features."""

from __future__ import annotations

from runner.values.slots import EMPTY, Slot

COLOUR = Slot("colour", "")
SIZE: Slot[int | None] = Slot("size", None)


def test_a_slot_that_is_not_set_has_its_default() -> None:
    assert EMPTY.get(COLOUR) == ""
    assert EMPTY.get(SIZE) is None


def test_a_value_is_set_without_changing_the_values_before() -> None:
    first = EMPTY.having(COLOUR, "red")
    second = first.having(COLOUR, "blue").having(SIZE, 3)
    assert (first.get(COLOUR), first.get(SIZE)) == ("red", None)
    assert (second.get(COLOUR), second.get(SIZE)) == ("blue", 3)


def test_two_slots_with_the_same_name_are_two() -> None:
    assert EMPTY.having(Slot("colour", ""), "red").get(COLOUR) == ""


def test_the_same_values_are_equal() -> None:
    assert EMPTY.having(COLOUR, "red") == EMPTY.having(COLOUR, "red") != EMPTY.having(COLOUR, "blue")
