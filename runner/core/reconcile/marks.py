"""Annotations whose new value starts a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.core.queue import reasons
from runner.core.queue.reasons import RunReason
from runner.values.objects import RUN_REQUESTED

if TYPE_CHECKING:
    from runner.core.kube.cache import Summary


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation whose new value starts a run."""

    annotation: str
    reason: RunReason
    on_removal: bool = False
    """True if its removal starts a run too."""

    def differs(self, old: Summary, new: Summary) -> bool:
        """Return True if a change of an object starts a run because of this annotation."""
        value = new.marks.get(self.annotation, "")
        return value != old.marks.get(self.annotation, "") and (self.on_removal or value != "")


RUN_MARK = Mark(RUN_REQUESTED, reasons.REQUESTED)
