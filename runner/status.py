"""Conditions as a run begins and ends. Pure: an object and what happened in, a patch out.

The three conditions are `Running`, `Successful` and `Failure`, see the API conventions, "Typical status properties".
Other conditions and other fields of status are never touched: the patch tests that the conditions are still those it
was made from, and that the object is still the same one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from runner.engine.job import Outcome, Recap, RunResult
from runner.objects import PAUSED, JSONPatch, Object, metadata, uid_of

Condition: TypeAlias = dict[str, Any]

CONTENDED = "Contended"
"""A condition that only objects have which a dependent has put into a circle."""
MAX_MESSAGE = 32_000
"""Characters; the API's own condition schema refuses more than 32,768."""

_CUT = "\n(cut here; the run's log holds the rest)"
_UNKNOWN_FAILURE = "unknown playbook failure"
_RUNNING_MESSAGE = "Running reconciliation"


def begun(obj: Object) -> list[Condition]:
    """Conditions of an object whose run begins."""
    wanted = [_condition("Running", status=True, reason="Running", message=_RUNNING_MESSAGE)]
    if _find(conditions_of(obj), "Successful") is not None:
        wanted.append(_condition("Successful", status=False, reason="Running", message=_RUNNING_MESSAGE))
    return wanted


def ended(result: RunResult, advice: Sequence[str]) -> list[Condition]:
    """Conditions of an object whose run has ended. `advice`: what may mend a failure, a sentence each."""
    if result.outcome is Outcome.SUCCEEDED:
        return [
            _condition(
                "Running",
                status=True,
                reason="Successful",
                message="Awaiting next reconciliation",
                recap=result.recap,
            ),
            _condition("Successful", status=True, reason="Successful", message="Last reconciliation succeeded"),
            _condition("Failure", status=False, reason="Successful", message=""),
        ]
    if result.outcome is Outcome.CANCELED:
        message = result.message or "The run was ended before it was done; it is started again."
        return [_condition("Running", status=False, reason="Canceled", message=message)]
    reason = "TimedOut" if result.outcome is Outcome.TIMED_OUT else "Failed"
    return failed(reason, failure_message(result, advice), result.recap)


def paused() -> list[Condition]:
    """Conditions of an object that somebody asked to be left as it is."""
    message = f"Not run while the annotation {PAUSED} is true"
    return [_condition("Running", status=False, reason="Paused", message=message)]


def contended(sentence: str) -> list[Condition]:
    """Conditions of an object that is slowed down, since a dependent of it is changed again and again."""
    return [_condition(CONTENDED, status=True, reason="DependentChangedAgain", message=sentence)]


def quiet(obj: Object) -> list[Condition]:
    """Conditions of an object that is slowed down no longer; none where nothing had been said."""
    if _find(conditions_of(obj), CONTENDED) is None:
        return []
    return [_condition(CONTENDED, status=False, reason="Quiet", message="")]


def failed(reason: str, message: str, recap: Recap | None = None) -> list[Condition]:
    """Conditions of an object whose run failed, or could not even be started."""
    return [
        _condition("Running", status=False, reason=reason, message=""),
        _condition("Successful", status=False, reason=reason, message=""),
        _condition("Failure", status=True, reason=reason, message=_bounded(message, MAX_MESSAGE), recap=recap),
    ]


def failure_message(result: RunResult, advice: Sequence[str]) -> str:
    """Say why a run failed: each failed task's message, a line each, or the engine's own sentence; then the advice."""
    lines = [failure.message or _UNKNOWN_FAILURE for failure in result.failures]
    if not lines or result.outcome is not Outcome.FAILED:
        lines.insert(0, result.message or _UNKNOWN_FAILURE)
    tail = "".join(f"\n{each}" for each in advice)
    return _bounded("\n".join(lines), MAX_MESSAGE - len(tail)) + tail


def observed(obj: Object, conditions: Sequence[Condition]) -> list[Condition]:
    """Mark the conditions as being about the generation of `obj`, the object that the run was given."""
    generation = metadata(obj).get("generation")
    return [c if generation is None else {**c, "observedGeneration": generation} for c in conditions]


def patch(obj: Object, wanted: Sequence[Condition], now: float) -> JSONPatch | None:
    """Build the patch that gives `obj` the `wanted` conditions; None when it has them already.

    `now` is in seconds since the epoch. `lastTransitionTime` moves only when a condition's status does; a condition
    that differs in nothing but its `ansibleResult.completion` counts as the same.
    """
    before = conditions_of(obj)
    after = [dict(condition) for condition in before]
    for condition in wanted:
        _put(after, condition, now)
    if after == before:
        return None
    operations: JSONPatch = [{"op": "test", "path": "/metadata/uid", "value": uid_of(obj)}]
    status = obj.get("status")
    if not isinstance(status, dict):
        operations += [
            {"op": "test", "path": "/status", "value": status},
            {"op": "add", "path": "/status", "value": {"conditions": after}},
        ]
    else:
        operations += [
            {"op": "test", "path": "/status/conditions", "value": status.get("conditions")},
            {"op": "add", "path": "/status/conditions", "value": after},
        ]
    return operations


def lost(obj: Object, wanted: Sequence[Condition]) -> list[str]:
    """Name what a server's schema took out of the conditions we wrote, as paths; empty when nothing is missing."""
    found = conditions_of(obj)
    missing: list[str] = []
    for condition in wanted:
        kept = _find(found, condition["type"])
        if kept is None:
            return ["status.conditions"]
        missing += [f"status.conditions[].{name}" for name in condition if name not in kept]
    return sorted(set(missing))


def conditions_of(obj: Object) -> list[Condition]:
    """Read `status.conditions`; entries that are no maps are left out of the view."""
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [entry for entry in conditions if isinstance(entry, dict)] if isinstance(conditions, list) else []


def _condition(kind: str, *, status: bool, reason: str, message: str, recap: Recap | None = None) -> Condition:
    condition: Condition = {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
    }
    if recap is not None:
        condition["ansibleResult"] = {
            "ok": recap.ok,
            "changed": recap.changed,
            "skipped": recap.skipped,
            "failures": recap.failures,
            "completion": recap.completion,
        }
    return condition


def _put(conditions: list[Condition], wanted: Condition, now: float) -> None:
    """Replace or append the condition of that type, keeping its transition time and fields of others."""
    old = _find(conditions, wanted["type"])
    if old is None:
        conditions.append({**wanted, "lastTransitionTime": _timestamp(now)})
        return
    if _essence(old) == _essence(wanted):
        return
    moved = old.get("status") != wanted["status"] or not old.get("lastTransitionTime")
    transition = _timestamp(now) if moved else old["lastTransitionTime"]
    conditions[conditions.index(old)] = {**wanted, "lastTransitionTime": transition}


def _essence(condition: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a difference worth a write."""
    essence = {name: value for name, value in condition.items() if name != "lastTransitionTime"}
    result = essence.get("ansibleResult")
    if isinstance(result, dict):
        essence["ansibleResult"] = {name: value for name, value in result.items() if name != "completion"}
    return essence


def _find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def _bounded(message: str, most: int) -> str:
    if len(message) <= most:
        return message
    return message[: most - len(_CUT)] + _CUT


def _timestamp(now: float) -> str:
    """RFC 3339 with seconds, as `metav1.Time` is written."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
