"""What a run's beginning and end say in an object's status. Pure: an object and what happened in, a patch out.

The three conditions are `Running`, `Successful` and `Failure`, see the API conventions, "Typical status properties";
those that tools wait for are `ready`'s. Other conditions and other fields of status are never touched: the patch tests
that the conditions are still those it was made from, and that the object is still the same one. All that is to be said
at a moment is one patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.engine.job import Outcome, Recap, RunResult, TaskFailure
from runner.objects import PAUSED, JSONPatch, Object, metadata, uid_of
from runner.status import kstatus
from runner.status.conditions import Condition, conditions_of, find, make, put
from runner.status.kstatus import KstatusConditions

CONTENDED = "Contended"
"""A condition that only objects have which a dependent has put into a circle."""
MAX_MESSAGE = 32_000
"""Characters; the API's own condition schema refuses more than 32,768."""
OBSERVED = "observedGeneration"

_SHORT = 600
"""Bytes of a message that leave room for the place of its task where 1,000 are taken."""
_CUT = "\n(cut here)"
_UNKNOWN_FAILURE = "unknown playbook failure"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What is to stand in an object's status."""

    conditions: tuple[Condition, ...]
    health: KstatusConditions = field(default_factory=dict)
    """Empty: what tools wait for stays as it is, and so does `status.observedGeneration`."""
    generation: int | None = None
    """For `status.observedGeneration`; None: it stays as it is."""


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """What is known of a failed run beside its result."""

    advice: Sequence[str] = ()
    """What may mend it, a sentence each."""
    more: str = ""
    """Where all the run said is found, a sentence."""
    final: bool = False
    """Whether it is not tried again until the object changes."""


def begun(obj: Object) -> StatusReport:
    """What is said of an object whose run begins."""
    wanted = [make("Running", "True", "Running", kstatus.RUNNING_MESSAGE)]
    if find(conditions_of(obj), "Successful") is not None:
        wanted.append(make("Successful", "False", "Running", kstatus.RUNNING_MESSAGE))
    return StatusReport(tuple(wanted), kstatus.working(kstatus.STARTED))


def ended(result: RunResult, failed: FailureDetails) -> StatusReport:
    """What is said of an object whose run has ended. `failed` counts where the run did not succeed."""
    if result.outcome is Outcome.SUCCEEDED:
        running = make("Running", "True", "Successful", "Awaiting next reconciliation")
        return StatusReport(
            (
                _with_recap(running, result.recap),
                make("Successful", "True", "Successful", kstatus.SUCCESS_MESSAGE),
                make("Failure", "False", "Successful", ""),
            ),
            kstatus.succeeded(),
        )
    if result.outcome is Outcome.CANCELED:
        message = result.message or "The run was canceled; it is started again."
        return StatusReport(
            (make("Running", "False", "Canceled", message),), kstatus.working(kstatus.CANCELED, message)
        )
    timed_out = result.outcome is Outcome.TIMED_OUT
    conditions = _failure("TimedOut" if timed_out else "Failed", failure_message(result, failed), result.recap)
    reason = kstatus.TIMED_OUT if timed_out else kstatus.FAILED
    return StatusReport(conditions, kstatus.failed(reason, first_failure(result), final=failed.final))


def unusable(message: str) -> StatusReport:
    """What is said of an object that cannot be run as it is."""
    return StatusReport(_failure("Unusable", message, None), kstatus.failed(kstatus.NOT_RUNNABLE, message, final=True))


def paused() -> StatusReport:
    """What is said of an object that somebody asked to be left as it is."""
    message = f"Not run while the annotation {PAUSED} is true"
    return StatusReport((make("Running", "False", "Paused", message),), kstatus.paused(message))


def contended(reason: str, sentence: str) -> StatusReport:
    """What is said of an object that is slowed down, since what it owns or names is changed again and again."""
    return StatusReport((make(CONTENDED, "True", reason, sentence),))


def quiet(obj: Object) -> StatusReport:
    """What is said of an object that is slowed down no longer; nothing where nothing had been said."""
    if find(conditions_of(obj), CONTENDED) is None:
        return StatusReport(())
    return StatusReport((make(CONTENDED, "False", "Quiet", ""),))


def failure_message(result: RunResult, failed: FailureDetails) -> str:
    """Say why a run failed: each failed task's message, a line each, or the engine's own sentence; then the tasks.

    What is cut is that; the advice, and where the rest is, stand whole behind it.
    """
    lines = [failure.message or _UNKNOWN_FAILURE for failure in result.failures]
    if not lines or result.outcome is not Outcome.FAILED:
        lines.insert(0, result.message or _UNKNOWN_FAILURE)
    lines += [_place(failure) for failure in result.failures if failure.task or failure.path]
    tail = "".join(f"\n{each}" for each in (*failed.advice, failed.more) if each)
    return _bounded("\n".join(lines), MAX_MESSAGE - len(tail)) + tail


def first_failure(result: RunResult) -> str:
    """Say why a run failed, in short: the first failed task with its place, or the engine's own sentence."""
    if not result.failures or result.outcome is not Outcome.FAILED:
        return result.message or _UNKNOWN_FAILURE
    first = result.failures[0]
    message = first.message or _UNKNOWN_FAILURE
    if len(data := message.encode(errors="replace")) > _SHORT:
        message = data[:_SHORT].decode(errors="ignore") + "…"
    return f"{message} ({_place(first)})"


def observed(obj: Object, report: StatusReport) -> StatusReport:
    """Mark all as being about the generation of `obj`, the object that the run was given."""
    generation = metadata(obj).get("generation")
    if generation is None:
        return report
    about = {OBSERVED: generation}
    return StatusReport(
        tuple({**condition, **about} for condition in report.conditions),
        {kind: wanted and {**wanted, **about} for kind, wanted in report.health.items()},
        generation if report.health else None,
    )


def without_health(obj: Object, report: StatusReport) -> StatusReport:
    """Leave out what tools wait for, and take off what was said of it before."""
    return replace(report, health=kstatus.NONE if _has_health(obj) and report.health else {}, generation=None)


def without(report: StatusReport, pruned: frozenset[str]) -> StatusReport:
    """Leave out what a schema is known to drop; names as `lost` gives them."""

    def holdable(condition: Condition) -> Condition:
        return {name: value for name, value in condition.items() if f"{_IN_CONDITIONS}.{name}" not in pruned}

    return StatusReport(
        tuple(map(holdable, report.conditions)),
        {kind: wanted and holdable(wanted) for kind, wanted in report.health.items()},
        None if f"status.{OBSERVED}" in pruned else report.generation,
    )


def patch(obj: Object, report: StatusReport, now: float) -> JSONPatch | None:
    """Build the patch that makes the status of `obj` what is reported; None when it is that already.

    `now` is in seconds since the epoch.
    """
    before = conditions_of(obj)
    after = [dict(condition) for condition in before]
    for condition in report.conditions:
        put(after, condition, now)
    kstatus.fold(after, report.health, now)
    found = obj.get("status")
    status: dict[str, Any] = found if isinstance(found, dict) else {}
    operations = _observing(obj, status, report)
    if after == before and not operations:
        return None
    same: JSONPatch = [{"op": "test", "path": "/metadata/uid", "value": uid_of(obj)}]
    if not isinstance(found, dict):
        wanted = {"conditions": after} | {op["path"].rpartition("/")[2]: op["value"] for op in operations}
        return [
            *same,
            {"op": "test", "path": "/status", "value": found},
            {"op": "add", "path": "/status", "value": wanted},
        ]
    return [
        *same,
        {"op": "test", "path": "/status/conditions", "value": status.get("conditions")},
        *operations,
        {"op": "add", "path": "/status/conditions", "value": after},
    ]


def lost(obj: Object, report: StatusReport) -> list[str]:
    """Name what a server's schema took out of what we wrote, as paths; empty when nothing is missing."""
    found = conditions_of(obj)
    missing: set[str] = set()
    for wanted in (*report.conditions, *filter(None, report.health.values())):
        kept = find(found, wanted["type"])
        if kept is None:
            return ["status.conditions"]
        if wanted in report.conditions or kstatus.is_ours(kept):
            missing.update(f"{_IN_CONDITIONS}.{name}" for name in wanted if name not in kept)
    if report.generation is not None and OBSERVED not in obj["status"]:
        missing.add(f"status.{OBSERVED}")
    return sorted(missing)


_IN_CONDITIONS = "status.conditions[]"


def _has_health(obj: Object) -> bool:
    kept = find(conditions_of(obj), kstatus.READY)
    return kept is not None and kstatus.is_ours(kept)


def _observing(obj: Object, status: dict[str, Any], report: StatusReport) -> JSONPatch:
    """Tell the generation, or take it off together with the `Ready` that it belongs to."""
    path = f"/status/{OBSERVED}"
    wanted, kept = report.health.get(kstatus.READY), find(conditions_of(obj), kstatus.READY)
    if wanted is not None and wanted["status"] == "Unknown" and kept is not None and not kstatus.is_ours(kept):
        return []  # a role's own `Ready` is about an earlier generation until its run has ended
    if report.generation is not None and status.get(OBSERVED) != report.generation:
        return [{"op": "add", "path": path, "value": report.generation}]
    if report.health == kstatus.NONE and OBSERVED in status and _has_health(obj):
        return [{"op": "remove", "path": path}]
    return []


def _failure(reason: str, message: str, recap: Recap | None) -> tuple[Condition, ...]:
    return (
        make("Running", "False", reason, ""),
        make("Successful", "False", reason, ""),
        _with_recap(make("Failure", "True", reason, _bounded(message, MAX_MESSAGE)), recap),
    )


def _with_recap(condition: Condition, recap: Recap | None) -> Condition:
    if recap is None:
        return condition
    result = {name: getattr(recap, name) for name in ("ok", "changed", "skipped", "failures", "completion")}
    return {**condition, "ansibleResult": result}


def _place(failure: TaskFailure) -> str:
    return f"task {failure.task!r}" + (f", {failure.path}" if failure.path else "")


def _bounded(message: str, most: int) -> str:
    return message if len(message) <= most else message[: most - len(_CUT)] + _CUT
