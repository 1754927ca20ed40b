"""Parts of an object's status that only the operator writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_
from typing import Any

from runner.core.status import kstatus
from runner.core.status.conditions import Condition


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """Parts that the operator or one of its features writes."""

    conditions: frozenset[str] = frozenset()
    """Types of its conditions."""
    fields: frozenset[str] = frozenset()
    """Names of its other fields."""
    reasons: frozenset[str] = frozenset()
    """Reasons of its conditions whose types a role may use too: `Ready`, `Reconciling` and `Stalled`."""
    passing: frozenset[str] = frozenset()
    """Those of the reasons whose conditions are no result of a run: the start of one replaces them."""

    @classmethod
    def joined(cls, *parts: OwnStatus) -> OwnStatus:
        """Return all these parts."""
        return cls(*(reduce(or_, (getattr(part, field.name) for part in parts)) for field in fields(cls)))

    def wrote(self, condition: Condition) -> bool:
        """Return whether the operator wrote a condition of `kstatus`.

        If a schema drops reasons, the message decides.
        """
        if "reason" in condition:
            return str(condition["reason"]) in self.reasons
        return str(condition.get("message")) in kstatus.MESSAGES

    def removed_from(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status without these parts."""
        others = {name: value for name, value in status.items() if name not in self.fields}
        if isinstance(conditions := others.get("conditions"), list):
            others["conditions"] = [condition for condition in conditions if not self._contains(condition)]
            if not others["conditions"]:
                del others["conditions"]
        return others

    def _contains(self, condition: Any) -> bool:
        if not isinstance(condition, dict):
            return False
        kind = str(condition.get("type"))
        return kind in self.conditions or (kind in kstatus.TYPES and self.wrote(condition))


NOTHING_OWN = OwnStatus()
