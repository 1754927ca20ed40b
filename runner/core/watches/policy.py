"""Policy of a watch's runs (mode, timeout, cancellation, retries, limit of a finalizer), and its fields. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import yaml

from runner.base.config import duration
from runner.base.yamlfile import tree
from runner.base.yamlfile.fields import Fields
from runner.core.watches import field
from runner.values.backoff import Backoff

LIMIT = field.section(
    "finalizer.limit",
    "finalizer: {name: example.com/f, role: cleanup, limit: {%s}}",
    field.whole("attempts", "consecutive failed runs; 0: no limit", "20"),
    field.duration("time", "time since the deletion", "1h"),
    field.text(
        "then",
        "`keep` (the default): the object remains until it changes; `release`: the operator removes its finalizer",
        "release",
        values=("keep", "release"),
        frame="finalizer: {name: example.com/f, role: cleanup, limit: {time: 1h, %s}}",
    ),
)
RETRY = field.section(
    "retry",
    "retry: {%s}",
    field.duration("delay", "delay after the first failure", "5s", "1s"),
    field.number("factor", "factor of each further delay, 1 to 100", "3", "2"),
    field.duration("maxDelay", "maximum delay", "10m", "30m"),
    field.whole(
        "attempts", "consecutive failures after which retries stop until the object changes; 0: no limit", "8", "0"
    ),
)
_HIGHEST_FACTOR = 100.0

RunMode: TypeAlias = Literal["apply", "approve", "plan"]
"""`apply`: runs execute the role. `approve`: they plan, and execute an approved plan. `plan`: they only plan."""
MODES: tuple[RunMode, ...] = ("apply", "approve", "plan")
"""From the least to the most restrictive."""
StatusTrigger: TypeAlias = Literal["auto", "all", "off"]
"""Changes of the status of a dependent or a reference that start a run. `auto`: those that mean something to the owner.
`all`: each. `off`: none."""


def mode_of(text: str) -> RunMode | None:
    """Return the mode with a name; None if there is none. Case is ignored."""
    return next((mode for mode in MODES if mode == text.lower()), None)


def strictest(*modes: RunMode) -> RunMode:
    """Return the most restrictive mode."""
    return max(modes, key=MODES.index)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of failed runs."""

    backoff: Backoff
    attempts: int
    """Consecutive failures after which retries stop until the object changes; 0: no limit."""


@dataclass(frozen=True, slots=True)
class FinalizerLimit:
    """Limit of a finalizer's retries, and the action at the limit."""

    attempts: int
    """Consecutive failures; 0: no limit."""
    time: float | None
    """Seconds since the deletion request; None: no limit."""
    release: bool
    """True: remove the finalizer. False: keep it and retry when the object changes."""


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """Policy of the runs of one watch."""

    timeout: float | None
    """Seconds; None: the flag's value; 0: no limit."""
    change_cancels: bool
    """Whether a change of the spec cancels the active run."""
    deletion_cancels: bool
    """Whether a deletion cancels the active run, so that the finalizer starts at once."""
    retry: RetryPolicy


DEFAULT = RunPolicy(
    timeout=None,
    change_cancels=False,
    deletion_cancels=False,
    retry=RetryPolicy(Backoff(1.0), attempts=0),
)
"""Policy of a watch without these fields."""


def read(fields: Fields) -> RunPolicy:
    """Return the policy of a watch. Absent and invalid fields have their defaults."""
    return RunPolicy(
        timeout=span(fields, "runTimeout", off=True),
        change_cancels=_cancels(fields, "onChange"),
        deletion_cancels=_cancels(fields, "onDelete"),
        retry=_retry(fields),
    )


def mode(fields: Fields) -> RunMode:
    """Return the mode of a watch."""
    text = fields.text("mode").lower()
    if text and text not in MODES:
        fields.error(
            "mode",
            f"invalid value {text!r}: use apply, plan (runs change nothing) or approve (runs wait for an approval)",
        )
    return mode_of(text) or MODES[0]


def status_trigger(fields: Fields) -> StatusTrigger:
    """Return the changes of a dependent's status that start a run."""
    field = "watchDependentStatus"
    node, text = fields.node(field), fields.text(field)
    if text.lower() in {"", "auto"}:
        return "auto"
    if node is None or not tree.is_bool(node):
        fields.error(field, f"invalid value {text!r}: use auto, true or false, without quotes")
        return "auto"
    return "all" if fields.boolean(field, default=True) else "off"


def _cancels(fields: Fields, name: str) -> bool:
    text = fields.text(name).lower()
    if text not in {"", "wait", "cancel"}:
        fields.error(
            name, f"invalid value {text!r}: use wait (the run continues) or cancel (the operator ends the run)"
        )
    return text == "cancel"


def _retry(fields: Fields) -> RetryPolicy:
    default = DEFAULT.retry
    section = fields.fields("retry", field.names(RETRY))
    if section is None:
        return default
    delay = span(section, "delay", off=False)
    longest = span(section, "maxDelay", off=False)
    delay = default.backoff.delay if delay is None else delay
    longest = max(default.backoff.cap, delay) if longest is None else longest
    if longest < delay:
        section.error("maxDelay", "shorter than delay: use at least the value of delay")
    return RetryPolicy(Backoff(delay, _factor(section), longest), _attempts(section))


def limit(finalizer: Fields) -> FinalizerLimit | None:
    """Return the `limit` of a finalizer; None if it has none."""
    section = finalizer.fields("limit", field.names(LIMIT))
    if section is None:
        return None
    attempts, time, then = _attempts(section), span(section, "time", off=False), section.text("then")
    if not attempts and time is None:
        section.error("", "no limit: set attempts, time, or both")
    if then not in {"", "keep", "release"}:
        section.error(
            "then",
            f"invalid value {then!r}: use keep (retry when the object changes) or release (remove the finalizer)",
        )
    return FinalizerLimit(attempts, time, release=then == "release")


def _attempts(fields: Fields) -> int:
    attempts = fields.integer("attempts", default=0)
    if attempts < 0:
        fields.error(
            "attempts", f"invalid number {attempts}: use the maximum number of consecutive failures, or 0 for no limit"
        )
    return attempts


def _factor(fields: Fields) -> float:
    text = fields.text("factor")
    if not text:
        return DEFAULT.retry.backoff.factor
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1 <= factor <= _HIGHEST_FACTOR:
        fields.error("factor", f"invalid factor {text!r}: use a number from 1 (constant delay) to {_HIGHEST_FACTOR:g}")
        return DEFAULT.retry.backoff.factor
    return factor


def span(fields: Fields, name: str, *, off: bool) -> float | None:
    """Return a positive duration; None if it is absent. With `off`, the texts off and 0s mean 0."""
    text = fields.text(name)
    if not isinstance(fields.node(name), yaml.ScalarNode):
        return None
    if off and text.lower() == "off":
        return 0.0
    try:
        seconds = duration.parse(text)
    except ValueError as error:
        fields.error(name, f"{error}{', or off' if off else ''}")
        return None
    if seconds < 0 or (seconds == 0 and not off):
        fields.error(
            name, f"invalid duration {text!r}: use a positive duration such as {'10m, or off' if off else '5s'}"
        )
        return None
    return seconds
