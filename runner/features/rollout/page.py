"""Rollouts on the status page: a table with a row for each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from runner.base import page
from runner.base.page import Node, PageSections, Section
from runner.core.reconcile.feature import Part
from runner.features.rollout.state import State
from runner.features.rollout.steps import Fleet
from runner.values.objects import GVK

Progress: TypeAlias = Callable[[], tuple[State, Fleet] | None]
"""Returns the state and the objects of a rollout; None while they are not known."""

_MOST_NAMES = 5
_COLUMNS = (
    ("Kind", ""),
    ("Step", ""),
    ("Objects after each step", ""),
    ("Updated", "number"),
    ("Outdated", "number"),
    ("State", ""),
    ("Stopped by", ""),
)


@dataclass(frozen=True, slots=True)
class RolloutTable(Part):
    """The rollouts of all kinds."""

    kinds: dict[GVK, Progress] = field(default_factory=dict)

    def sections(self) -> PageSections:
        """Return what the page shows."""
        return PageSections(overview=self._overview)

    def _overview(self) -> Section | None:
        rows = [_row(gvk, *current) for gvk, progress in self.kinds.items() if (current := progress()) is not None]
        return page.section("Rollouts", page.table("Rollouts", _COLUMNS, rows)) if rows else None


def _row(gvk: GVK, state: State, fleet: Fleet) -> list[Node]:
    """Return the step, its size and its state, and the objects that stopped the rollout."""
    stopping = [member.key for member in fleet.members if member.uid in state.failed - state.excused]
    outdated = sum(not member.is_new for member in fleet.members if member.uid not in fleet.ran)
    going: Node = "ended" if state.ended else "in progress"
    if state.paused:
        going = [page.element("tag", "paused"), " ", page.element("isolated", state.paused)]
    return [
        gvk.kind,
        "ended" if state.ended else f"{state.step + 1} of {len(state.limits)}",
        ", ".join(map(str, state.limits)),
        str(len(fleet.ran)),
        str(outdated),
        going,
        [[page.link(gvk, key), " "] for key in stopping[:_MOST_NAMES]],
    ]
