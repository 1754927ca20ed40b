"""References as part of an operator: changes of objects that a spec names start runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.core.queue.reasons import RunReason
from runner.core.reconcile.feature import Feature, Kind, Part, PartBase
from runner.core.status.report import OwnStatus
from runner.features.references.fields import FIELDS, REFERENCES

if TYPE_CHECKING:
    from runner.core.reconcile.hooks import Hooks

IGNORED_REFERENCES = "IgnoredReferences"
"""A condition of objects with references that are not watched."""
REFERENCE = RunReason(
    "reference changed",
    10.0,
    starts_over=True,
    shows_object=True,
    is_required=True,
    message="A reference changed",
)


def hooks(kind: Kind) -> Hooks:
    """Return the condition about ignored references, and what keeps the references of each object, if there are any.

    The condition ends with the references of the watch.
    """
    from runner.features.references import hooks as made  # noqa: PLC0415 - see Feature

    if not kind.scope.watch.more.get(REFERENCES):
        return made.IgnoredReferences(kind.scope)
    return made.KnownReferences(kind.scope, kind.operator.part(made.WatchedReferences).references)


def _part(base: PartBase) -> Part | None:
    if not any(watch.more.get(REFERENCES) for watch in base.watches):
        return None
    from runner.features.references.hooks import WatchedReferences  # noqa: PLC0415 - see Feature

    return WatchedReferences()


FEATURE = Feature(
    fields=(FIELDS,),
    status=OwnStatus(conditions=frozenset({IGNORED_REFERENCES})),
    reasons=(REFERENCE,),
    part=_part,
)
