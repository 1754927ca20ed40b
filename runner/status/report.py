"""Status of an object at the start and end of a run, as one JSON patch. Pure.

The conditions are `Running`, `Successful` and `Failure` (API conventions, "Typical status properties") and those of
`kstatus`. Other conditions and fields of the status stay.

Rule: a JSON Patch never tests a value that another client wrote, because the API server panics when it compares lists
with null. The patch tests the `resourceVersion` that it is based on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.engine.job import Outcome, Recap, RunResult, TaskFailure
from runner.log import visible
from runner.objects import PAUSED, JSONPatch, Object, conditions_of, first_names, mapping, metadata, uid_of
from runner.prune.sharing import OtherUsers
from runner.status import kstatus
from runner.status.conditions import Condition, ConditionStatus, find, make, put
from runner.status.kstatus import KstatusConditions

CONTENDED = "Contended"
"""Type of the condition of objects that a dependent or a reference runs again and again."""
IGNORED_VARIABLES = "IgnoredVariables"
"""A condition of objects whose spec sets variables that Ansible itself interprets."""
IGNORED_VARIABLES_ADVICE = (
    "The run does not receive variables of the spec that Ansible itself interprets; rename these fields, "
    "or allow them with allowAnsibleVariables in watches.yaml"
)
IGNORED_REFERENCES = "IgnoredReferences"
"""A condition of objects whose spec has references that are not watched."""
PLANNED = "Planned"
"""A condition of objects whose mode is `plan` or `approve`."""
PLAN_STALE = "PlanStale"
"""A condition of objects with an approved plan that was not executed, or not to its end."""
CHANGES, NO_CHANGES, PARTIAL, PLAN_FAILED = "Changes", "NoChanges", "Partial", "PlanFailed"
EXECUTED = "Executed"
"""Reasons of `Planned`."""
DRIFTED = "Drifted"
"""A condition of objects whose drift checks found changes by other clients."""
PLAN, DRIFT, HOSTS = "plan", "drift", "hosts"
"""Fields of the status with the plan, with the drift, and with the results of hosts."""
LIMITED_ANNOTATIONS = "LimitedAnnotations"
"""A condition of objects whose annotations exceed the limits of their watch."""
LIMITED_ANNOTATIONS_ADVICE = (
    "Annotations exceed the limits that the operator's administrator sets; change the annotations, "
    "or the limits in watches.yaml or the flags"
)
UNREACHABLE = "Unreachable"
"""Reason of `Failure` if the only problem of a run is that hosts could not be reached."""
PRUNABLE = "Prunable"
"""A condition of objects whose runs created objects that they no longer use."""
UPDATED = "Updated"
"""A condition of the objects of a watch with `rollout`."""
KEEP_ADVICE = 'to keep an object, annotate it with ansible.sdk.operatorframework.io/prune: "false"'
MAX_MESSAGE = 32_000
"""Characters; the API's own condition schema refuses more than 32,768."""
FINALIZER_RAN = "FinalizerNotRemoved"
"""Reason of `RequestRefused` of objects whose finalizer has run, so that only its removal is left."""
REQUEST_REFUSED = "RequestRefused"
"""A condition of objects about which the API server refuses a request of the operator."""
OBSERVED = "observedGeneration"
_OWN = frozenset(
    {
        *("Running", "Successful", "Failure", PLANNED, PLAN_STALE, DRIFTED, PRUNABLE, UPDATED),
        *(CONTENDED, IGNORED_VARIABLES, IGNORED_REFERENCES, LIMITED_ANNOTATIONS, REQUEST_REFUSED),
    }
)
"""Types of conditions that only the operator writes."""

_SHORT = 600
"""Bytes of a message that leave room for its task and path within the 1,000 bytes of an Event's note."""
_MOST_NAMED = 20
_CUT = "\n(cut here)"
_UNKNOWN_FAILURE = "unknown playbook failure"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Change of an object's status."""

    conditions: tuple[Condition, ...]
    health: KstatusConditions = field(default_factory=dict)
    """Empty: the kstatus conditions and `status.observedGeneration` stay."""
    generation: int | None = None
    """New `status.observedGeneration`; None: it stays."""
    plan: Mapping[str, Any] | None = None
    """New `status.plan`; empty removes it; None: it stays."""
    drift: Mapping[str, Any] | None = None
    """New `status.drift`; empty removes it; None: it stays."""
    hosts: Sequence[Mapping[str, Any]] | None = None
    """New `status.hosts`; empty removes it; None: it stays."""

    def joined(self, other: StatusReport) -> StatusReport:
        """Return the report with the changes of another one, which has priority."""
        conditions = {each["type"]: each for each in (*self.conditions, *other.conditions)}
        return StatusReport(
            tuple(conditions.values()),
            other.health or self.health,
            self.generation if other.generation is None else other.generation,
            self.plan if other.plan is None else other.plan,
            self.drift if other.drift is None else other.drift,
            self.hosts if other.hosts is None else other.hosts,
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


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Objects that runs created and no longer use, by kind and key."""

    unused: Sequence[str] = ()
    deleted: Sequence[str] = ()
    problems: Sequence[str] = ()
    """Objects that cannot be deleted, a sentence each."""
    shared: Sequence[tuple[str, OtherUsers]] = ()
    """Objects that stay because of other resources."""
    held: Sequence[tuple[str, str]] = ()
    """Objects that stay because the run may not have reached their tasks, with the task and what happened to it."""
    unrecorded: str = ""
    """Why not all created objects are recorded."""
    counts: bool = False
    """Whether the run was complete, so that the report replaces the last one."""
    deletable: bool = True
    """Whether `prune: delete` would delete unused objects. Runs that a user approves delete none."""


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
    condition = make(REQUEST_REFUSED, "True", reason, _bounded(sentence, MAX_MESSAGE))
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


def plan_made(status: ConditionStatus, reason: str, message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after a plan. `plan` is the new `status.plan`."""
    message = _bounded(message, MAX_MESSAGE)
    if status == "False":
        health = kstatus.failed(kstatus.PLAN_FAILED, message, final=False)
    elif reason == NO_CHANGES:
        health = kstatus.nothing_to_do(message)
    else:
        health = kstatus.awaiting(message)
    return StatusReport((make(PLANNED, status, reason, message),), health, plan=plan)


def plan_stale(message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after an approval that was not executed. `plan` is the new `status.plan`."""
    message = _bounded(message, MAX_MESSAGE)
    conditions = (make(PLANNED, "False", PLAN_STALE, message), make(PLAN_STALE, "True", "Differs", message))
    return StatusReport(conditions, kstatus.awaiting(message), plan=plan)


def plan_refused(message: str, plan: Mapping[str, Any]) -> StatusReport:
    """Return the change after an approved run that the proxy ended. `plan` is the new `status.plan`."""
    message = _bounded(message, MAX_MESSAGE)
    conditions = (
        make("Running", "False", PLAN_STALE, ""),
        make(PLANNED, "False", PLAN_STALE, message),
        make(PLAN_STALE, "True", "OtherWrite", message),
    )
    return StatusReport(conditions, kstatus.failed(kstatus.PLAN_STALE, message, final=True), plan=plan)


def plan_outdated(message: str) -> tuple[Condition, ...]:
    """Return the condition of an object with an approval of another plan; none without a message."""
    return (make(PLAN_STALE, "True", "Outdated", _bounded(message, MAX_MESSAGE)),) if message else ()


def names_stale(obj: Object, approved: str) -> bool:
    """Return whether the conditions report why a plan was not executed."""
    found = find(conditions_of(obj), PLAN_STALE) or {}
    return found.get("status") == "True" and str(found.get("message")).startswith(f"Plan {approved} ")


def is_stale(obj: Object) -> bool:
    """Return whether the conditions report for the current generation that an approval was not executed."""
    found = find(conditions_of(obj), PLANNED) or {}
    return found.get("reason") == PLAN_STALE and found.get(OBSERVED) == metadata(obj).get("generation")


def plan_executed(obj: Object, approved: str) -> tuple[Condition, ...]:
    """Return the conditions after an approved run that was not refused."""
    executed = make(PLANNED, "True", EXECUTED, f"Plan {approved} was executed")
    if find(conditions_of(obj), PLAN_STALE) is None:
        return (executed,)
    return executed, make(PLAN_STALE, "False", EXECUTED, "")


def drift_of(obj: Object) -> dict[str, Any]:
    """Return `status.drift`; empty if there is none."""
    return mapping(mapping(obj.get("status")).get(DRIFT))


def drift_found(message: str, drift: Mapping[str, Any]) -> StatusReport:
    """Return the change after a check that found drift. `drift` is the new `status.drift`."""
    return StatusReport((make(DRIFTED, "True", "ChangedByOthers", _bounded(message, MAX_MESSAGE)),), drift=drift)


def drift_ended(obj: Object) -> StatusReport:
    """Return the change after a run, or after a check without drift; empty if no drift was reported."""
    if find(conditions_of(obj), DRIFTED) is None and not drift_of(obj):
        return StatusReport(())
    return StatusReport((make(DRIFTED, "False", "NoDrift", ""),), drift={})


def plan_ended(obj: Object) -> tuple[Condition, ...]:
    """Return the conditions of an object whose mode is no longer `plan` or `approve`."""
    found = conditions_of(obj)
    stale = {PLANNED: "Applied", PLAN_STALE: "Applied"}
    return tuple(make(kind, "False", reason, "") for kind, reason in stale.items() if find(found, kind) is not None)


def contended(reason: str, sentence: str) -> StatusReport:
    """Return the change for an object whose runs are slowed down because its dependents or references keep changing."""
    return StatusReport((make(CONTENDED, "True", reason, sentence),))


def contention_ended(obj: Object) -> StatusReport:
    """Return the change that ends `Contended`; empty if the object does not have that condition."""
    if find(conditions_of(obj), CONTENDED) is None:
        return StatusReport(())
    return StatusReport((make(CONTENDED, "False", "Quiet", ""),))


def ignored(obj: Object, variables: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names ignored variables, or none if there is nothing to report or to take back."""
    if variables:
        message = f"{', '.join(variables)}: {IGNORED_VARIABLES_ADVICE}"
        return (make(IGNORED_VARIABLES, "True", "ReservedNames", _bounded(message, MAX_MESSAGE)),)
    if find(conditions_of(obj), IGNORED_VARIABLES) is None:
        return ()
    return (make(IGNORED_VARIABLES, "False", "NoneIgnored", ""),)


def ignored_references(obj: Object, foreign: Sequence[str], excess: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names references in namespaces that are not allowed, and those beyond the maximum."""
    sentences = []
    if foreign:
        sentences.append(
            f"{first_names(foreign, _MOST_NAMED)}: not watched, because the watch does not allow these namespaces. "
            "Use objects in the namespace of this object, or allow them with references[].namespaces in watches.yaml."
        )
    if excess:
        sentences.append(f"{first_names(excess, _MOST_NAMED)}: not watched, because the spec names too many objects.")
    if sentences:
        reason = "NamespaceNotAllowed" if foreign else "TooManyReferences"
        return (make(IGNORED_REFERENCES, "True", reason, _bounded(" ".join(sentences), MAX_MESSAGE)),)
    if find(conditions_of(obj), IGNORED_REFERENCES) is None:
        return ()
    return (make(IGNORED_REFERENCES, "False", "NoneIgnored", ""),)


def limited(obj: Object, problems: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names annotations beyond their limits, or none if there is nothing to report or end."""
    if problems:
        message = f"{'; '.join(problems)}. {LIMITED_ANNOTATIONS_ADVICE}"
        return (make(LIMITED_ANNOTATIONS, "True", "OutOfBounds", _bounded(message, MAX_MESSAGE)),)
    if find(conditions_of(obj), LIMITED_ANNOTATIONS) is None:
        return ()
    return (make(LIMITED_ANNOTATIONS, "False", "WithinBounds", ""),)


def prunable(obj: Object, found: PruneReport) -> tuple[Condition, ...]:
    """Return the condition about unused objects, or none if there is nothing to report or to take back."""
    state = _prune_state(found)
    if state is not None:
        return (make(PRUNABLE, *state, _bounded("\n".join(_about_unused(found)), MAX_MESSAGE)),)
    kept = find(conditions_of(obj), PRUNABLE)
    if kept is None or kept.get("status") == "False" or not found.counts:
        return ()
    return (make(PRUNABLE, "False", "NoneUnused", ""),)


def _prune_state(found: PruneReport) -> tuple[ConditionStatus, str] | None:
    """Return status and reason of `Prunable`; None if there is nothing to report."""
    states: tuple[tuple[object, ConditionStatus, str], ...] = (
        (found.problems, "True", "NotDeleted"),
        (found.unused, "True", "Unused"),
        (any(others.is_unknown for _, others in found.shared), "Unknown", "Waiting"),
        (found.held, "Unknown", "TasksOmitted"),
        (found.unrecorded, "Unknown", "NotRecorded"),
        (found.shared, "False", "InUse"),
        (found.deleted, "False", "Pruned"),
    )
    return next(((status, reason) for applies, status, reason in states if applies), None)


def _about_unused(found: PruneReport) -> Iterator[str]:
    """Yield the sentences of `Prunable`."""
    yield from (f"Cannot delete {problem}" for problem in found.problems[:_MOST_NAMED])
    if len(found.problems) > _MOST_NAMED:
        yield f"Cannot delete {len(found.problems) - _MOST_NAMED} more objects"
    if found.unused:
        advice = "Delete them, or set prune: delete in watches.yaml" if found.deletable else "Delete them"
        yield f"{first_names(found.unused, _MOST_NAMED)}: no longer used by the runs. {advice}; {KEEP_ADVICE}."
    if found.deleted:
        yield f"Deleted: {first_names(found.deleted, _MOST_NAMED)}."
    by_users: dict[OtherUsers, list[str]] = {}
    for name, others in found.shared:
        by_users.setdefault(others, []).append(name)
    yield from (
        f"{first_names(names, _MOST_NAMED)}: no longer used by this resource; {why}." for why, names in by_users.items()
    )
    by_task: dict[str, list[str]] = {}
    for name, what in found.held:
        by_task.setdefault(what, []).append(name)
    for what, names in by_task.items():
        yield f"{first_names(names, _MOST_NAMED)}: not used by the last run, but kept, because {what}."
    if found.unrecorded:
        yield f"Further objects cannot be pruned: {found.unrecorded}"


def failure_message(result: RunResult, failed: FailureDetails) -> str:
    """Return why a run failed: missing rights, then each failed task's message, or the engine's own.

    The tasks, advice and `more` follow. Missing rights, advice and `more` are never cut.
    """
    lines = [_message(failure, result) for failure in result.failures]
    if names := result.unreachable:
        missed = first_names(result.missed, _MOST_NAMED)
        are_done = not missed and len(result.hosts) > len(names)
        others = f". No results: {missed}" if missed else "; other hosts are done" if are_done else ""
        lines.insert(0, f"Unreachable: {first_names(names, _MOST_NAMED)}. The operator tries again{others}.")
    if not lines or result.outcome is not Outcome.FAILED:
        lines.insert(0, result.message or _UNKNOWN_FAILURE)
    lines = [*failed.missing, *lines, *(_place(each) for each in result.failures if each.task or each.path)]
    tail = "".join(f"\n{each}" for each in (*failed.advice, failed.more) if each)
    return _bounded("\n".join(lines), MAX_MESSAGE - len(tail)) + tail


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
        report.plan,
        report.drift,
        report.hosts,
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
        None if f"status.{PLAN}" in pruned else report.plan,
        None if f"status.{DRIFT}" in pruned else report.drift,
        None if f"status.{HOSTS}" in pruned else report.hosts,
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
    for name, value in ((PLAN, report.plan), (DRIFT, report.drift)):
        if value and mapping(status.get(name)).get("hash") != value.get("hash"):
            missing.add(f"status.{name}")
    if report.hosts and HOSTS not in status:
        missing.add(f"status.{HOSTS}")
    return sorted(missing)


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
    """Set or remove `status.plan`, `status.drift` and `status.hosts`."""
    hosts = None if report.hosts is None else list(report.hosts)
    for name, value in ((PLAN, report.plan), (DRIFT, report.drift), (HOSTS, hosts)):
        if value is None or value == status.get(name, type(value)()):
            continue
        yield (
            {"op": "add", "path": f"/status/{name}", "value": value if isinstance(value, list) else dict(value)}
            if value
            else {
                "op": "remove",
                "path": f"/status/{name}",
            }
        )


def without_own(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without the fields and conditions that the operator writes."""
    kept = {name: value for name, value in status.items() if name not in {PLAN, DRIFT, HOSTS, OBSERVED}}
    if isinstance(conditions := kept.get("conditions"), list):
        kept["conditions"] = [each for each in conditions if not _is_own(each)]
        if not kept["conditions"]:
            del kept["conditions"]
    return kept


def _is_own(condition: Any) -> bool:
    if not isinstance(condition, dict):
        return False
    kind = str(condition.get("type"))
    return kind in _OWN or (kind in kstatus.TYPES and kstatus.is_ours(condition))


def _failure(reason: str, message: str, recap: Recap | None) -> tuple[Condition, ...]:
    return (
        make("Running", "False", reason, ""),
        make("Successful", "False", reason, ""),
        _with_recap(make("Failure", "True", reason, _bounded(visible(message), MAX_MESSAGE)), recap),
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


def _bounded(message: str, most: int) -> str:
    return message if len(message) <= most else message[: most - len(_CUT)] + _CUT
