"""References of one watch's objects: known before a run, and followed. A condition names those that are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from runner.base.monitoring.background import Work
from runner.core.kube.cache import Change
from runner.core.reconcile.attempt import Attempt, WatchScope
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, Part, ProxyParts
from runner.core.reconcile.hooks import Hooks, Skip
from runner.core.status.conditions import Condition, ended, make
from runner.core.status.report import MOST_NAMED
from runner.features.references.feature import IGNORED_REFERENCES
from runner.features.references.fields import REFERENCES
from runner.features.references.state import references_of
from runner.values.objects import Object, ObjectKey, first_names

if TYPE_CHECKING:
    from runner.features.references.watching import References


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


@dataclass(frozen=True, slots=True)
class KnownReferences(IgnoredReferences):
    """Also reports the objects of one watch to the watches of references, and waits for these before a run."""

    references: References

    def changed(self, change: Change) -> None:
        """Follow the references of an object if they can have changed."""
        old, new, gvk = change.old, change.new, self.scope.watch.gvk
        if new is None:
            self.references.forget(gvk, change.key)
        elif old is None or new.generation is None or old.generation != new.generation:
            obj = self.scope.informer.get(change.key)
            if obj is not None:
                self.references.update(gvk, obj)

    def inputs(self, key: ObjectKey) -> str | None:
        """Identify the state of the references."""
        return self.references.fingerprint(self.scope.watch.gvk, key)

    async def ready(self, key: ObjectKey) -> None:
        """Wait until the references of an object are known, or have an error."""
        await self.references.ready(self.scope.watch.gvk, key)


class WatchedReferences(Part):
    """References of an operator."""

    references: References

    async def open(self, operator: Operator) -> Mapping[str, str]:
        """Begin with no references: the kinds report their objects."""
        from runner.features.references.watching import References  # noqa: PLC0415 - see Feature

        self.references = References(
            operator.client,
            operator.discovery,
            operator.settings.namespaces,
            operator.watches,
            operator.trigger,
            operator.leadership.leads,
        )
        self.proxy = ProxyParts(runs=(self.references,))
        return {}

    async def start(self, operator: Operator, kinds: Sequence[Controller]) -> Mapping[str, Work]:  # noqa: ARG002 - as Part has it
        """Watch the references."""
        return {"references": partial(self.references.follow, operator.background)}
