"""Status of an object at the start and end of a run, as one JSON patch. Pure.

The conditions are `Running`, `Successful` and `Failure` (API conventions, "Typical status properties") and those of
`kstatus`. Other conditions and fields of the status stay.

Rule: a JSON Patch never tests a value that another client wrote, because the API server panics when it compares lists
with null. The patch tests the `resourceVersion` that it is based on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from runner.engine.job import Outcome, Recap, RunResult, TaskFailure
from runner.objects import PAUSED, JSONPatch, Object, conditions_of, first_names, mapping, metadata, uid_of
from runner.status import kstatus
from runner.status.conditions import MAX_MESSAGE, Condition, bounded, ended, find, make, put
from runner.status.kstatus import KstatusConditions

IGNORED_VARIABLES = "IgnoredVariables"
"""A condition of objects whose spec sets variables that Ansible itself interprets."""
IGNORED_VARIABLES_ADVICE = (
    "The run does not receive variables of the spec that Ansible itself interprets; rename these fields, "
    "or allow them with allowAnsibleVariables in watches.yaml"
)
LIMITED_ANNOTATIONS = "LimitedAnnotations"
"""A condition of objects whose annotations exceed the limits of their watch."""
LIMITED_ANNOTATIONS_ADVICE = (
    "Annotations exceed the limits that the operator's administrator sets; change the annotations, "
    "or the limits in watches.yaml or the flags"
)
UNREACHABLE = "Unreachable"
"""Reason of `Failure` if the only problem of a run is that hosts could not be reached."""
FINALIZER_RAN = "FinalizerNotRemoved"
"""Reason of `RequestRefused` of objects whose finalizer has run, so that only its removal is left."""
REQUEST_REFUSED = "RequestRefused"
"""A condition of objects about which the API server refuses a request of the operator."""
OBSERVED = "observedGeneration"
_SHORT = 600
"""Bytes of a message that leave room for its task and path within the 1,000 bytes of an Event's note."""
MOST_NAMED = 20
_UNKNOWN_FAILURE = "unknown playbook failure"


StatusField: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Value of a field of the status beside the conditions."""


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """Parts of a status that only the operator writes, beside the conditions of `kstatus`."""

    conditions: frozenset[str]
    """Types."""
    fields: frozenset[str] = frozenset()

    @classmethod
    def joined(cls, *parts: OwnStatus) -> OwnStatus:
        """Return the parts of the operator and of its features."""
        return cls(
            frozenset().union(*(part.conditions for part in parts)), frozenset().union(*(part.fields for part in parts))
        )

    def removed_from(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status without these parts."""
        kept = {name: value for name, value in status.items() if name not in self.fields}
        if isinstance(conditions := kept.get("conditions"), list):
            kept["conditions"] = [condition for condition in conditions if not self._contains(condition)]
            if not kept["conditions"]:
                del kept["conditions"]
        return kept

    def _contains(self, condition: Any) -> bool:
        if not isinstance(condition, dict):
            return False
        kind = str(condition.get("type"))
        return kind in self.conditions or (kind in kstatus.TYPES and kstatus.is_ours(condition))


OWN = OwnStatus(
    frozenset({"Running", "Successful", "Failure", IGNORED_VARIABLES, LIMITED_ANNOTATIONS, REQUEST_REFUSED}),
    frozenset({OBSERVED}),
)
"""Parts that the operator writes without features."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Change of an object's status."""

    conditions: tuple[Condition, ...]
    health: KstatusConditions = field(default_factory=dict)
    """Empty: the kstatus conditions and `status.observedGeneration` stay."""
    generation: int | None = None
    """New `status.observedGeneration`; None: it stays."""
    fields: Mapping[str, StatusField] = field(default_factory=dict)
    """New values of fields of features, such as `status.plan`, by name; an empty value removes the field."""

    def joined(self, other: StatusReport) -> StatusReport:
        """Return the report with the changes of another one, which has priority."""
        conditions = {each["type"]: each for each in (*self.conditions, *other.conditions)}
        return StatusReport(
            tuple(conditions.values()),
            other.health or self.health,
            self.generation if other.generation is None else other.generation,
            {**self.fields, **other.fields},
        )

    def with_conditions(self, conditions: tuple[Condition, ...]) -> StatusReport:
        """Return the report with further conditions."""
        return replace(self, conditions=(*self.conditions, *conditions))


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """Facts about a failed run beside its result."""

    missing: Sequence[str] = ()
    """Rights that the run lacked, with the rules to add. They come first, because a module's message is often long."""
    advice: Sequence[str] = ()
    """How to fix it, a sentence each."""
    more: str = ""
    """Where the run's whole output is, a sentence."""
    final: bool = False
    """Whether the run is not retried until the object changes."""


def run_began(obj: Object) -> StatusReport:
    """Return the change at the start of a run."""
    wanted = [make("Running", "True", "Running", kstatus.RUNNING_MESSAGE)]
    if find(conditions_of(obj), "Successful") is not None:
        wanted.append(make("Successful", "False", "Running", kstatus.RUNNING_MESSAGE))
    return StatusReport(tuple(wanted), kstatus.working(kstatus.STARTED))


def run_ended(result: RunResult, failed: FailureDetails) -> StatusReport:
    """Return the change at the end of a run. `failed` is used if the run did not succeed."""
    if result.outcome is Outcome.SUCCEEDED and result.unfinished:
        return _requeued()
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
    if result.waits:
        waits = make("Running", "False", kstatus.WAITING, result.message)
        return StatusReport((waits,), kstatus.working(kstatus.WAITING, result.message))
    if result.outcome is Outcome.CANCELED:
        message = result.message or "The run was canceled; it is started again."
        return StatusReport(
            (make("Running", "False", "Canceled", message),), kstatus.working(kstatus.CANCELED, message)
        )
    timed_out = result.outcome is Outcome.TIMED_OUT
    word = "TimedOut" if timed_out else UNREACHABLE if result.unreachable else "Failed"
    conditions = _failure(word, failure_message(result, failed), result.recap)
    reason = kstatus.TIMED_OUT if timed_out else kstatus.FAILED
    return StatusReport(conditions, kstatus.failed(reason, first_failure(result, failed.missing), final=failed.final))


def _requeued() -> StatusReport:
    """Return the change after a run whose role requested another one: the object is still in progress.

    `Running` is the same as during a run, so that a role that polls causes no writes.
    """
    return StatusReport(
        (
            make("Running", "True", "Running", kstatus.RUNNING_MESSAGE),
            make("Successful", "False", "Requeued", kstatus.REQUEUED_MESSAGE),
            make("Failure", "False", "Requeued", ""),
        ),
        kstatus.working(kstatus.REQUEUED, kstatus.REQUEUED_MESSAGE),
    )


def unusable(message: str) -> StatusReport:
    """Return the change for an object that cannot run as it is."""
    return StatusReport(_failure("Unusable", message, None), kstatus.failed(kstatus.NOT_RUNNABLE, message, final=True))


def request_refused(what: str, message: str, reason: str = "Refused") -> StatusReport:
    """Return the change for an object about which a request is refused: `what`, with the server's message."""
    sentence = (
        f"The API server refuses the {what}: {message}. "
        "The operator retries with backoff of up to 10 minutes, and at once if the object changes."
    )
    condition = make(REQUEST_REFUSED, "True", reason, sentence)
    return StatusReport((condition,), kstatus.failed(kstatus.REQUEST_REFUSED, sentence, final=False))


def finalizer_has_run(obj: Object) -> bool:
    """Return whether the status contains that the finalizer has run, and that its removal was refused."""
    found = find(conditions_of(obj), REQUEST_REFUSED) or {}
    is_current = found.get(OBSERVED) == metadata(obj).get("generation")
    return is_current and found.get("status") == "True" and found.get("reason") == FINALIZER_RAN


def request_accepted(obj: Object) -> StatusReport:
    """Return the change that ends `RequestRefused`; empty if the object does not have that condition."""
    found = find(conditions_of(obj), REQUEST_REFUSED)
    if found is None or found.get("status") == "False":
        return StatusReport(())
    return StatusReport((make(REQUEST_REFUSED, "False", "Accepted", ""),))


def paused() -> StatusReport:
    """Return the change for a paused object."""
    message = f"Not run while the annotation {PAUSED} is true"
    return StatusReport((make("Running", "False", "Paused", message),), kstatus.paused(message))


def ignored(obj: Object, variables: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names ignored variables, or none if there is nothing to report or to take back."""
    if variables:
        message = f"{', '.join(variables)}: {IGNORED_VARIABLES_ADVICE}"
        return (make(IGNORED_VARIABLES, "True", "ReservedNames", message),)
    return ended(obj, IGNORED_VARIABLES, "NoneIgnored")


def limited(obj: Object, problems: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names annotations beyond their limits, or none if there is nothing to report or end."""
    if problems:
        message = f"{'; '.join(problems)}. {LIMITED_ANNOTATIONS_ADVICE}"
        return (make(LIMITED_ANNOTATIONS, "True", "OutOfBounds", message),)
    return ended(obj, LIMITED_ANNOTATIONS, "WithinBounds")


def failure_message(result: RunResult, failed: FailureDetails) -> str:
    """Return why a run failed: missing rights, then each failed task's message, or the engine's own.

    The tasks, advice and `more` follow. Missing rights, advice and `more` are never cut.
    """
    lines = [_message(failure, result) for failure in result.failures]
    if names := result.unreachable:
        missed = first_names(result.missed, MOST_NAMED)
        are_done = not missed and len(result.hosts) > len(names)
        others = f". No results: {missed}" if missed else "; other hosts are done" if are_done else ""
        lines.insert(0, f"Unreachable: {first_names(names, MOST_NAMED)}. The operator tries again{others}.")
    if not lines or result.outcome is not Outcome.FAILED:
        lines.insert(0, result.message or _UNKNOWN_FAILURE)
    lines = [*failed.missing, *lines, *(_place(each) for each in result.failures if each.task or each.path)]
    tail = "".join(f"\n{each}" for each in (*failed.advice, failed.more) if each)
    return bounded("\n".join(lines), MAX_MESSAGE - len(tail)) + tail


def first_failure(result: RunResult, missing: Sequence[str] = ()) -> str:
    """Return in short why a run failed: the first failed task with its path, or the engine's own sentence.

    The rights that the run lacked, `missing`, come first.
    """
    if not result.failures or result.outcome is not Outcome.FAILED:
        return "; ".join([*missing, result.message or _UNKNOWN_FAILURE])
    first = result.failures[0]
    message = "; ".join([*missing, _message(first, result)])
    most = max(_SHORT, len("; ".join(missing).encode()))
    if len(data := message.encode(errors="replace")) > most:
        message = data[:most].decode(errors="ignore") + "…"
    return f"{message} ({_place(first)})"


def observed(obj: Object, report: StatusReport) -> StatusReport:
    """Add the generation of `obj`, the object that the run received."""
    generation = metadata(obj).get("generation")
    if generation is None:
        return report
    about = {OBSERVED: generation}
    return StatusReport(
        tuple({**condition, **about} for condition in report.conditions),
        {kind: wanted and {**wanted, **about} for kind, wanted in report.health.items()},
        generation if report.health else None,
        report.fields,
    )


def without_health(obj: Object, report: StatusReport) -> StatusReport:
    """Remove the kstatus conditions from the change and from the object."""
    return replace(report, health=kstatus.NONE if _has_health(obj) and report.health else {}, generation=None)


def without(report: StatusReport, pruned: frozenset[str]) -> StatusReport:
    """Omit fields that the kind's schema drops; names as `dropped_fields` returns them."""

    def holdable(condition: Condition) -> Condition:
        return {name: value for name, value in condition.items() if f"{_IN_CONDITIONS}.{name}" not in pruned}

    return StatusReport(
        tuple(map(holdable, report.conditions)),
        {kind: wanted and holdable(wanted) for kind, wanted in report.health.items()},
        None if f"status.{OBSERVED}" in pruned else report.generation,
        {name: value for name, value in report.fields.items() if f"status.{name}" not in pruned},
    )


def patch(obj: Object, report: StatusReport, now: float) -> JSONPatch | None:
    """Build the patch that applies a change to the status of `obj`; None if nothing differs.

    `now` is in seconds since the epoch.
    """
    after = [dict(condition) for condition in conditions_of(obj)]
    for condition in report.conditions:
        put(after, condition, now)
    kstatus.fold(after, report.health, now)
    found = obj.get("status")
    status = mapping(found)
    operations = [*_observing(obj, status, report), *_publishing(status, report)]
    listed = status.get("conditions")
    if after == (listed if isinstance(listed, list) else []) and not operations:
        return None
    same: JSONPatch = [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata(obj).get("resourceVersion")},
    ]
    if not isinstance(found, dict):
        wanted = {"conditions": after} | {
            op["path"].rpartition("/")[2]: op["value"] for op in operations if op["op"] == "add"
        }
        return [*same, {"op": "add", "path": "/status", "value": wanted}]
    return [*same, *operations, {"op": "add", "path": "/status/conditions", "value": after}]


def dropped_fields(obj: Object, report: StatusReport) -> list[str]:
    """Return the paths of fields that the server's schema dropped from a written change; empty if none."""
    found = conditions_of(obj)
    missing: set[str] = set()
    for wanted in (*report.conditions, *filter(None, report.health.values())):
        kept = find(found, wanted["type"])
        if kept is None:
            return ["status.conditions"]
        if wanted in report.conditions or kstatus.is_ours(kept):
            missing.update(f"{_IN_CONDITIONS}.{name}" for name in wanted if name not in kept)
    status = mapping(obj.get("status"))
    if report.generation is not None and OBSERVED not in status:
        missing.add(f"status.{OBSERVED}")
    missing.update(
        f"status.{name}" for name, value in report.fields.items() if value and not _is_kept(status, name, value)
    )
    return sorted(missing)


def _is_kept(status: Mapping[str, Any], name: str, value: StatusField) -> bool:
    """Return whether a status has a field. The `hash` of a map shows whether its content was kept."""
    hashed = value.get("hash") if isinstance(value, Mapping) else None
    return name in status and (hashed is None or mapping(status[name]).get("hash") == hashed)


_IN_CONDITIONS = "status.conditions[]"


def _has_health(obj: Object) -> bool:
    kept = find(conditions_of(obj), kstatus.READY)
    return kept is not None and kstatus.is_ours(kept)


def _observing(obj: Object, status: Mapping[str, Any], report: StatusReport) -> JSONPatch:
    """Set `status.observedGeneration`, or remove it together with our `Ready`."""
    path = f"/status/{OBSERVED}"
    wanted, kept = report.health.get(kstatus.READY), find(conditions_of(obj), kstatus.READY)
    if wanted is not None and wanted["status"] == "Unknown" and kept is not None and not kstatus.is_ours(kept):
        return []  # a role's own `Ready` is about an earlier generation until its run has ended
    if report.generation is not None and status.get(OBSERVED) != report.generation:
        return [{"op": "add", "path": path, "value": report.generation}]
    if report.health == kstatus.NONE and OBSERVED in status and _has_health(obj):
        return [{"op": "remove", "path": path}]
    return []


def _publishing(status: Mapping[str, Any], report: StatusReport) -> Iterator[dict[str, Any]]:
    """Set or remove the fields of features."""
    for name, given in report.fields.items():
        value = dict(given) if isinstance(given, Mapping) else list(given)
        path = f"/status/{name}"
        if value != status.get(name, type(value)()):
            yield {"op": "add", "path": path, "value": value} if value else {"op": "remove", "path": path}


def _failure(reason: str, message: str, recap: Recap | None) -> tuple[Condition, ...]:
    return (
        make("Running", "False", reason, ""),
        make("Successful", "False", reason, ""),
        _with_recap(make("Failure", "True", reason, message), recap),
    )


def _with_recap(condition: Condition, recap: Recap | None) -> Condition:
    if recap is None:
        return condition
    result = {name: getattr(recap, name) for name in ("ok", "changed", "skipped", "failures", "completion")}
    return {**condition, "ansibleResult": result}


def _message(failure: TaskFailure, result: RunResult) -> str:
    """Return the message of a failed task, with its host if the resource has hosts."""
    message = failure.message or _UNKNOWN_FAILURE
    return f"{failure.host}: {message}" if failure.host and result.hosts else message


def _place(failure: TaskFailure) -> str:
    return f"task {failure.task!r}" + (f", {failure.path}" if failure.path else "")
