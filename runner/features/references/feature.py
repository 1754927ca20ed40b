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


def ignored(kind: Kind) -> Hooks:
    """Return the condition about ignored references. It ends with the references of the watch."""
    from runner.features.references.ignored import IgnoredReferences  # noqa: PLC0415 - see Feature

    return IgnoredReferences(kind.scope)


def known(kind: Kind) -> Hooks | None:
    """Return what keeps the references of each object."""
    if not kind.scope.watch.more.get(REFERENCES):
        return None
    from runner.features.references.known import KnownReferences, WatchedReferences  # noqa: PLC0415 - see Feature

    return KnownReferences(kind.scope, kind.operator.part(WatchedReferences).references)


def _part(base: PartBase) -> Part | None:
    if not any(watch.more.get(REFERENCES) for watch in base.watches):
        return None
    from runner.features.references.known import WatchedReferences  # noqa: PLC0415 - see Feature

    return WatchedReferences()


FEATURE = Feature(
    fields=(FIELDS,),
    status=OwnStatus(conditions=frozenset({IGNORED_REFERENCES})),
    reasons=(REFERENCE,),
    part=_part,
)
