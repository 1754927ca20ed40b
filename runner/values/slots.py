"""Optional data of features in the types of the core.

A type of the core, such as a watch or a job, has one field for the data of all features: `more`. A feature declares a
`Slot` and reads and sets only its own. So the core needs no field for a feature, and no name of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """A value of one feature: its name, for messages, and what counts where it is not set. Compared by identity."""

    def __init__(self, name: str, default: T) -> None:
        self.name, self.default = name, default

    def __deepcopy__(self, _memo: object) -> Slot[T]:
        return self

    def __repr__(self) -> str:
        return f"<slot {self.name}>"


@dataclass(frozen=True, slots=True)
class Slots:
    """Values of slots. Immutable."""

    _values: Mapping[Slot[Any], Any] = field(default_factory=dict)

    def get(self, slot: Slot[T]) -> T:
        """Return the value of a slot, or its default."""
        value: T = self._values.get(slot, slot.default)
        return value

    def having(self, slot: Slot[T], value: T) -> Slots:
        """Return the values with another one of a slot."""
        return Slots({**self._values, slot: value})


EMPTY = Slots()
"""No values."""
