"""Limits of a watch's runs (timeout, cancellation, retries, finalizer).

Imports nothing of this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from runner.values.backoff import Backoff

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
