"""Decision about a plan of an object in the mode `plan` or `approve`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.core.reconcile.attempt import AnnotationOverrides
from runner.features.plan import published
from runner.features.plan.changes import ResourcePlan
from runner.features.plan.differing import DifferingValue
from runner.features.plan.plan_status import approved_hash
from runner.features.plan.published import PlanBasis
from runner.values.objects import Object

_LONGEST = 2000
"""Characters of a difference."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the plan to the status. It waits for an approval, if its mode has them."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Write the plan to the status, and why the one that a user approved is not executed."""

    why: str


@dataclass(frozen=True, slots=True)
class PlanAgain:
    """Compare the plan with a second one: values that differ in each run need an approval of their own."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute the plan. Each value of the fields that differ in each run is approved."""

    differing: tuple[DifferingValue, ...]


PlanDecision: TypeAlias = Publish | Reject | PlanAgain | Execute


def decide(
    plan: ResourcePlan,
    basis: PlanBasis,
    withheld: str,
    approved: Mapping[str, Any] | None,
    differing: tuple[DifferingValue, ...] | None,
) -> PlanDecision:
    """Decide about a plan.

    `withheld`: why the plan contains no values; empty if it does. `approved`: the plan in the status if a user approved
    it, otherwise None. `differing`: fields whose values differ from those of a second plan; None if there is no second
    plan that succeeded.
    """
    if plan.state == "failed" or approved is None:
        return Publish()
    why = _outdated(basis, withheld, approved)
    if not why and plan.changes and differing is None:
        return PlanAgain()
    values = (differing or ()) if plan.changes else ()
    why = why or _uncovered(values)
    return Reject(why) if why else Execute(values)


def _outdated(basis: PlanBasis, withheld: str, approved: Mapping[str, Any]) -> str:
    """Return why an approved plan is not the one that was made now; empty if it is."""
    if withheld:
        return f"the values of the plan are {withheld}"
    if basis.hash(str(approved.get("nonce"))) != approved["hash"]:
        return joined(published.differences(approved, basis))
    return ""


def _uncovered(values: tuple[DifferingValue, ...]) -> str:
    """Return which values no approval covers; empty if it covers all."""
    if all(value.is_covered for value in values):
        return ""
    return published.random_values(published.named(values)).removeprefix(". ")


def is_used(plan: Mapping[str, Any]) -> bool:
    """Return whether a plan, as in the status, was executed, or began to be."""
    return (plan.get("approval") or {}).get("hash") == plan.get("hash")


def is_approved(obj: Object, plan: Mapping[str, Any], overrides: AnnotationOverrides) -> bool:
    """Return whether a user approved the plan in the status, and it was not executed yet."""
    approved = approved_hash(obj)
    return overrides.mode == "approve" and bool(approved) and approved == plan.get("hash") and not is_used(plan)


def joined(differences: Iterable[str]) -> str:
    """Return differences as one text of limited length."""
    text = "; ".join(differences)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
