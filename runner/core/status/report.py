"""Changes of an object's status at the start and end of a run. Pure.

The conditions are `Running`, `Successful` and `Failure` (API conventions, "Typical status properties") and those of
`kstatus`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

from runner.base.page import plural
from runner.core.engine.job import Outcome, Recap, RunResult, TaskFailure
from runner.core.status import kstatus
from runner.core.status.conditions import MAX_MESSAGE, Condition, bounded, ended, find, make
from runner.core.status.kstatus import KstatusConditions
from runner.values.objects import PAUSED, Object, conditions_of, first_names, is_deleting, metadata

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
PAUSED_MESSAGE = f"Not run while the annotation {PAUSED} is true"
_SHORT = 600
"""Bytes of a message that leave room for its task and path within the 1,000 bytes of an Event's note."""
MOST_NAMED = 20
_UNKNOWN_FAILURE = "unknown playbook failure"
_FINALIZING = "Running the finalizer; the deletion waits for it"
_SEE = ": see the condition Failure"


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

StatusField: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Value of a field of the status beside the conditions."""


OWN = OwnStatus(
    conditions=frozenset({"Running", "Successful", "Failure", IGNORED_VARIABLES, LIMITED_ANNOTATIONS, REQUEST_REFUSED}),
    fields=frozenset({OBSERVED}),
    reasons=kstatus.REASONS,
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
    """New values of fields of features by name; an empty value removes the field."""
    follows: frozenset[str] = frozenset()
    """Reasons of the `Ready` that `health` replaces, if that is about the same generation; empty: any `Ready`."""

    def continues(self, ready: Condition | None) -> bool:
        """Return True if `health` replaces this `Ready`."""
        new = self.health.get(kstatus.READY)
        return not self.follows or (
            ready is not None
            and new is not None
            and ready.get("reason") in self.follows
            and ready.get(OBSERVED) == new.get(OBSERVED)
        )

    def joined(self, other: StatusReport) -> StatusReport:
        """Return the report with the changes of another one, which has priority."""
        conditions = {condition["type"]: condition for condition in (*self.conditions, *other.conditions)}
        is_other = other.health and (not self.health or other.continues(self.health.get(kstatus.READY)))
        return StatusReport(
            tuple(conditions.values()),
            other.health if is_other else self.health,
            self.generation if other.generation is None else other.generation,
            {**self.fields, **other.fields},
            other.follows if is_other and not (self.health and not self.follows) else self.follows,
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
    runs: int = 1
    """Failed runs in a row."""
    deletes: bool = False
    """Whether it was the finalizer's run."""


def run_began(obj: Object) -> StatusReport:
    """Return the change at the start of a run."""
    message = _FINALIZING if is_deleting(obj) else kstatus.RUNNING_MESSAGE
    conditions = [make("Running", "True", "Running", message)]
    if find(conditions_of(obj), "Successful") is not None:
        conditions.append(make("Successful", "False", "Running", kstatus.RUNNING_MESSAGE))
    return StatusReport(tuple(conditions), kstatus.working(kstatus.STARTED))


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
            kstatus.ready("True", kstatus.SUCCEEDED, kstatus.SUCCESS_MESSAGE),
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
    conditions = _failure(word, failure_message(result, failed), result.recap, _after_failures(failed))
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


def unusable(message: str, *, final: bool = True) -> StatusReport:
    """Return the change for an object that cannot run as it is. `final`: it is not retried until the object changes."""
    running = f"The operator cannot run the object{_SEE}"
    return StatusReport(
        _failure("Unusable", message, None, running), kstatus.failed(kstatus.NOT_RUNNABLE, message, final=final)
    )


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
    refused = find(conditions_of(obj), REQUEST_REFUSED) or {}
    is_current = refused.get(OBSERVED) == metadata(obj).get("generation")
    return is_current and refused.get("status") == "True" and refused.get("reason") == FINALIZER_RAN


def request_accepted(obj: Object) -> StatusReport:
    """Return the change that ends `RequestRefused`; empty if the object does not have that condition."""
    refused = find(conditions_of(obj), REQUEST_REFUSED)
    if refused is None or refused.get("status") == "False":
        return StatusReport(())
    return StatusReport((make(REQUEST_REFUSED, "False", "Accepted", ""),))


def paused() -> StatusReport:
    """Return the change for a paused object."""
    health = kstatus.ready("Unknown", kstatus.PAUSED, PAUSED_MESSAGE)
    return StatusReport((make("Running", "False", "Paused", PAUSED_MESSAGE),), health)


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
    lines = [*failed.missing, *lines, *(_place(failure) for failure in result.failures if failure.task or failure.path)]
    tail = "".join(f"\n{line}" for line in (*failed.advice, failed.more) if line)
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
    return replace(
        report,
        conditions=tuple({**condition, **about} for condition in report.conditions),
        health={kind: condition and {**condition, **about} for kind, condition in report.health.items()},
        generation=generation if report.health else None,
    )


def _after_failures(failed: FailureDetails) -> str:
    """Return the message of `Running` after a failure. The tests of a project read the number."""
    runs = plural(failed.runs, "run") + (" of the finalizer" if failed.deletes else "")
    row = " in a row" if failed.runs > 1 else ""
    waits = ", and the deletion waits for it" if failed.deletes else ""
    return f"{runs} failed{row}{waits}{_SEE}"


def _failure(reason: str, message: str, recap: Recap | None, running: str) -> tuple[Condition, ...]:
    return (
        make("Running", "False", reason, running),
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
