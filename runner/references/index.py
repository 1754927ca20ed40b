"""Index of the references between objects. Pure.

Owns the references of each watched object, and the objects of each watch by namespace for labels. Must not import: the
client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runner.objects import GVK, ObjectKey, ObjectRef

_NO_TARGETS: frozenset[ObjectRef] = frozenset()


class ReferenceIndex:
    """References in both directions."""

    def __init__(self) -> None:
        self._references: dict[ObjectRef, frozenset[ObjectRef]] = {}
        self._targets: dict[ObjectRef, set[ObjectRef]] = {}
        self._spaces: dict[tuple[GVK, str], set[ObjectKey]] = {}

    def update(self, target: ObjectRef, references: frozenset[ObjectRef]) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Set the references of an object. Return those that are new and those that no object has any more."""
        before = self._references.get(target, frozenset())
        self._references[target] = references
        self._spaces.setdefault((target.gvk, target.key.namespace), set()).add(target.key)
        fresh = [each for each in references - before if self._add(each, target)]
        return fresh, self._leave(before - references, target)

    def forget(self, target: ObjectRef) -> list[ObjectRef]:
        """Remove an object. Return the references that no object has any more."""
        space = (target.gvk, target.key.namespace)
        there = self._spaces.get(space, set())
        there.discard(target.key)
        if not there:
            self._spaces.pop(space, None)
        return self._leave(self._references.pop(target, frozenset()), target)

    def references(self, target: ObjectRef) -> frozenset[ObjectRef]:
        """Return the references of an object."""
        return self._references.get(target, frozenset())

    def targets(self, references: ObjectRef) -> frozenset[ObjectRef]:
        """Return the objects that have a reference."""
        return frozenset(self._targets.get(references, _NO_TARGETS))

    def objects(self, watch: GVK, namespace: str) -> Iterator[ObjectRef]:
        """Yield the objects of a watch in a namespace and the cluster-scoped ones; empty: all."""
        spaces = {namespace, ""} if namespace else [space for gvk, space in self._spaces if gvk == watch]
        return (ObjectRef(watch, key) for space in spaces for key in self._spaces.get((watch, space), ()))

    def _add(self, references: ObjectRef, target: ObjectRef) -> bool:
        targets = self._targets.setdefault(references, set())
        targets.add(target)
        return len(targets) == 1

    def _leave(self, left: Iterable[ObjectRef], target: ObjectRef) -> list[ObjectRef]:
        unnamed = []
        for references in left:
            targets = self._targets[references]
            targets.discard(target)
            if not targets:
                del self._targets[references]
                unnamed.append(references)
        return unnamed
