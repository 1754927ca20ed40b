"""Condition `Prunable` of objects whose runs created objects that they no longer use. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.core.status.conditions import Condition, ConditionStatus, find, make
from runner.core.status.report import MOST_NAMED
from runner.features.prune.feature import PRUNABLE
from runner.features.prune.sharing import OtherUsers
from runner.values.objects import Object, conditions_of, first_names

KEEP_ADVICE = 'to keep an object, annotate it with ansible.sdk.operatorframework.io/prune: "false"'


@dataclass(slots=True)
class PruneReport:
    """Objects that runs created and no longer use, by kind and key."""

    unused: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Objects that cannot be deleted, a sentence each."""
    shared: list[tuple[str, OtherUsers]] = field(default_factory=list)
    """Objects that stay because of other resources."""
    held: list[tuple[str, str]] = field(default_factory=list)
    """Objects that stay because the run may not have reached their tasks, with the task and what happened to it."""
    unrecorded: str = ""
    """Why not all created objects are recorded."""
    counts: bool = False
    """Whether the run was complete, so that the report replaces the last one."""
    deletable: bool = True
    """Whether `prune: delete` would delete unused objects. Runs that a user approves delete none."""
    confirm: bool = False
    """Whether another run must confirm that objects are unused."""


def prunable(obj: Object, report: PruneReport) -> tuple[Condition, ...]:
    """Return the condition about unused objects, or none if there is nothing to report or to take back."""
    state = _prune_state(report)
    if state is not None:
        return (make(PRUNABLE, *state, "\n".join(_about_unused(report))),)
    before = find(conditions_of(obj), PRUNABLE)
    if before is None or before.get("status") == "False" or not report.counts:
        return ()
    return (make(PRUNABLE, "False", "NoneUnused", ""),)


def _prune_state(report: PruneReport) -> tuple[ConditionStatus, str] | None:
    """Return status and reason of `Prunable`; None if there is nothing to report."""
    states: tuple[tuple[object, ConditionStatus, str], ...] = (
        (report.problems, "True", "NotDeleted"),
        (report.unused, "True", "Unused"),
        (any(others.is_unknown for _, others in report.shared), "Unknown", "Waiting"),
        (report.held, "Unknown", "TasksOmitted"),
        (report.unrecorded, "Unknown", "NotRecorded"),
        (report.shared, "False", "InUse"),
        (report.deleted, "False", "Pruned"),
    )
    return next(((status, reason) for applies, status, reason in states if applies), None)


def _about_unused(report: PruneReport) -> Iterator[str]:
    """Yield the sentences of `Prunable`."""
    yield from (f"Cannot delete {problem}" for problem in report.problems[:MOST_NAMED])
    if len(report.problems) > MOST_NAMED:
        yield f"Cannot delete {len(report.problems) - MOST_NAMED} more objects"
    if report.unused:
        advice = "Delete them, or set prune: delete in watches.yaml" if report.deletable else "Delete them"
        yield f"{first_names(report.unused, MOST_NAMED)}: no longer used by the runs. {advice}; {KEEP_ADVICE}."
    if report.deleted:
        yield f"Deleted: {first_names(report.deleted, MOST_NAMED)}."
    by_users: dict[OtherUsers, list[str]] = {}
    for name, others in report.shared:
        by_users.setdefault(others, []).append(name)
    yield from (
        f"{first_names(names, MOST_NAMED)}: no longer used by this resource; {why}." for why, names in by_users.items()
    )
    by_task: dict[str, list[str]] = {}
    for name, what in report.held:
        by_task.setdefault(what, []).append(name)
    for what, names in by_task.items():
        yield f"{first_names(names, MOST_NAMED)}: not used by the last run, but kept, because {what}."
    if report.unrecorded:
        yield f"Further objects cannot be pruned: {report.unrecorded}"
