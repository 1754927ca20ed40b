"""Condition `IgnoredReferences` of objects whose spec has references that are not watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.hooks import Hooks, Skip
from runner.core.status.conditions import Condition, ended, make
from runner.core.status.report import MOST_NAMED
from runner.features.references.feature import IGNORED_REFERENCES
from runner.features.references.fields import REFERENCES
from runner.features.references.state import references_of
from runner.values.objects import Object, first_names


def ignored_references(obj: Object, foreign: Sequence[str], excess: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition that names references in namespaces that are not allowed, and those beyond the maximum."""
    sentences = []
    if foreign:
        sentences.append(
            f"{first_names(foreign, MOST_NAMED)}: not watched, because the watch does not allow these namespaces. "
            "Use objects in the namespace of this object, or allow them with references[].namespaces in watches.yaml."
        )
    if excess:
        sentences.append(f"{first_names(excess, MOST_NAMED)}: not watched, because the spec names too many objects.")
    if sentences:
        reason = "NamespaceNotAllowed" if foreign else "TooManyReferences"
        return (make(IGNORED_REFERENCES, "True", reason, " ".join(sentences)),)
    return ended(obj, IGNORED_REFERENCES, "NoneIgnored")


@dataclass(frozen=True, slots=True)
class IgnoredReferences(Hooks):
    """The condition that names references that are not watched."""

    scope: WatchScope

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Add the condition."""
        references = self.scope.watch.more.get(REFERENCES)
        named = references_of(references, attempt.obj)
        foreign, excess = [*map(str, named.foreign)], [*map(str, named.excess)]
        conditions = ignored_references(attempt.obj, foreign, excess)
        return replace(attempt, conditions=(*attempt.conditions, *conditions))
