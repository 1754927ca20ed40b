"""References of one watch's objects: known before a run, and followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from runner.base.monitoring.background import Work
from runner.core.kube.cache import Change
from runner.core.reconcile.attempt import WatchScope
from runner.core.reconcile.controller import Controller
from runner.core.reconcile.feature import Operator, Part, ProxyParts
from runner.core.reconcile.hooks import Hooks
from runner.features.references.watching import References
from runner.values.objects import ObjectKey


@dataclass(frozen=True, slots=True)
class KnownReferences(Hooks):
    """Reports the objects of one watch to the watches of references, and waits for these before a run."""

    scope: WatchScope
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
