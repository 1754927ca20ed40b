"""Knowledge about the existence of an object: present, absent, or unknown. Pure.

Rule: unknown is not empty, and not absent. Code that deletes, starts or ends something because an object does not exist
needs `ABSENT`. An object is unknown if its kind is not served, or its namespace is refused or was not listed yet. It is
unknown while the watch is interrupted. Two observations show an absence: an open watch after a complete list, and a 404
about the object (`NotFoundError`). A 404 about the kind (`KindNotFoundError`) shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from runner.values.objects import GVK


class Known(Enum):
    """Knowledge that is certain."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Objects of a kind whose existence is unknown."""

    gvk: GVK
    namespace: str
    """Empty: in all namespaces, or cluster-scoped."""
    why: str
    since: float
    """Time in seconds since the epoch."""

    def __str__(self) -> str:
        """Return the cause as the end of a sentence."""
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"the objects of the kind {self.gvk.kind}{where} are unknown: {self.why}"


Presence: TypeAlias = Known | Unknown
PRESENT, ABSENT = Known.PRESENT, Known.ABSENT
