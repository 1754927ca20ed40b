"""Annotations of an object that override settings of its runs, within the bounds of its watch. Pure.

Users who may only write the object set these annotations, so they must not exceed the limits of the administrator.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.config import duration
from runner.errors import TerminalError
from runner.objects import MODE, Object, annotations_of
from runner.watches.policy import MODES, RunMode, mode_of, strictest

PREFIX = "ansible.sdk.operatorframework.io/"
RECONCILE_PERIOD = PREFIX + "reconcile-period"
RUN_TIMEOUT = PREFIX + "run-timeout"
VERBOSITY = PREFIX + "verbosity"
MAX_RUNNER_ARTIFACTS = PREFIX + "max-runner-artifacts"

MAX_VERBOSITY = 7
_LONGEST = 40
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class AnnotationBounds:
    """Limits of annotations."""

    period: float
    """Seconds between periodic runs without an annotation; 0: off."""
    shortest_period: float
    """Seconds between periodic runs."""
    longest_run: float
    """Seconds that a run may take; 0: no limit."""
    highest_verbosity: int
    mode: RunMode = MODES[0]
    """Least restrictive mode."""


@dataclass(frozen=True, slots=True)
class AnnotationOverrides:
    """Settings that annotations override; None if the annotation is missing."""

    reconcile_period: float | None
    """Seconds; 0 turns periodic runs off."""
    run_timeout: float | None
    """Seconds that a run may take; 0: no limit."""
    verbosity: int | None
    max_runner_artifacts: int | None
    """Number of runs; 0 keeps all, -1 none."""
    mode: RunMode
    """Mode of the object's runs: that of the annotation or of the watch, whichever is stricter."""
    warnings: tuple[str, ...]
    """Invalid values, a sentence each."""
    limited: tuple[str, ...]
    """Values beyond the bounds, a sentence each, with the value that is used instead."""


NO_OVERRIDES = AnnotationOverrides(None, None, None, None, MODES[0], (), ())
"""Settings of an object without annotations in the least restrictive watch."""


def overrides_of(obj: Object, bounds: AnnotationBounds) -> AnnotationOverrides:
    """Read the annotations.

    Raises:
        TerminalError: a duration or the mode is invalid.
    """
    annotations = annotations_of(obj)
    warnings: list[str] = []
    limited: list[str] = []

    def limit(name: str, used: str) -> None:
        limited.append(f"annotation {name}: {annotations[name][:_LONGEST]!r} is beyond the limit; {used} is used")

    period = _duration(annotations, RECONCILE_PERIOD)
    if period and period < bounds.shortest_period:
        period = bounds.shortest_period
        limit(RECONCILE_PERIOD, duration.format(period))
    timeout = _duration(annotations, RUN_TIMEOUT)
    if timeout is not None and bounds.longest_run and not 0 < timeout <= bounds.longest_run:
        timeout = bounds.longest_run
        limit(RUN_TIMEOUT, duration.format(timeout))
    wanted = _mode(annotations) or bounds.mode
    mode = strictest(wanted, bounds.mode)
    if mode != wanted:
        limit(MODE, mode)
    verbosity = _integer(annotations, VERBOSITY, 0, MAX_VERBOSITY, warnings)
    if verbosity is not None and verbosity > bounds.highest_verbosity:
        verbosity = bounds.highest_verbosity
        limit(VERBOSITY, str(verbosity))
    return AnnotationOverrides(
        reconcile_period=period,
        run_timeout=timeout,
        verbosity=verbosity,
        max_runner_artifacts=_integer(annotations, MAX_RUNNER_ARTIFACTS, -1, None, warnings),
        mode=mode,
        warnings=tuple(warnings),
        limited=tuple(limited),
    )


def _duration(annotations: dict[str, str], name: str) -> float | None:
    text = annotations.get(name)
    if text is None:
        return None
    if text == "off":
        return 0.0
    try:
        return max(duration.parse(text), 0.0)
    except ValueError as error:
        raise TerminalError(
            f"annotation {name}: {error}; write a duration such as 10m, 1h30m or 0s (off). "
            "The object is not run until it changes",
        ) from error


def _mode(annotations: dict[str, str]) -> RunMode | None:
    text = annotations.get(MODE)
    if text is None:
        return None
    found = mode_of(text)
    if found is None:
        raise TerminalError(
            f"annotation {MODE}: {text[:_LONGEST]!r} is invalid; write plan, approve or apply. "
            "The object is not run until it changes"
        )
    return found


def _integer(
    annotations: dict[str, str], name: str, lowest: int, highest: int | None, warnings: list[str]
) -> int | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if value < lowest or (highest is not None and value > highest):
        bounds = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
        warnings.append(f"annotation {name}: {text!r} is not used; write a whole number {bounds}")
        return None
    return value
