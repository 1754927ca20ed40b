"""Reads the fields of `RunPolicy` and of a finalizer's limit. Pure."""

from __future__ import annotations

import math

import yaml

from runner.base.config import duration
from runner.base.yamlfile import tree
from runner.base.yamlfile.fields import Fields
from runner.core.watches import declared
from runner.core.watches.policy import (
    DEFAULT,
    MODES,
    FinalizerLimit,
    RetryPolicy,
    RunMode,
    RunPolicy,
    StatusTrigger,
    mode_of,
)
from runner.values.backoff import Backoff

_HIGHEST_FACTOR = 100.0


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
    section = fields.fields("retry", declared.names("retry"))
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
    section = finalizer.fields("limit", declared.names("finalizer.limit"))
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
