"""Objects that a run uses: those that its requests name, and those in lists that it reads. Pure.

The group of a resource is ignored, because some objects are served in several groups. So an object can only count as
used by mistake, and not as unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runner.objects import ObjectKey, key_of

RELEASE = "sh.helm.release.v1."
"""Beginning of the name of a helm release's Secret or ConfigMap: `sh.helm.release.v1.NAME.vREVISION`."""
_STORES = ("secrets", "configmaps")


class UsedObjects:
    """Objects that one run uses."""

    def __init__(self) -> None:
        self._named: set[tuple[str, ObjectKey]] = set()
        """Plurals and keys."""
        self._kinds: set[tuple[str, str]] = set()
        """Plurals and namespaces (empty: all) of which every object counts as used."""

    def name(self, plural: str, key: ObjectKey) -> None:
        """Note an object."""
        self._named.add((plural, key))

    def all_of(self, plural: str, namespace: str) -> None:
        """Note every object of a kind in a namespace; empty: in all namespaces, or cluster-scoped."""
        self._kinds.add((plural, namespace))

    def listed(self, plural: str, namespace: str, answer: Mapping[str, Any] | None) -> None:
        """Note the objects in the response to a list; every object of the kind if the response cannot be read."""
        items = answer.get("items") if answer is not None else None
        if not isinstance(items, list):
            self.all_of(plural, namespace)
            return
        for item in items:
            key = key_of(item) if isinstance(item, dict) else ObjectKey("", "")
            if not key.name:
                self.all_of(plural, namespace)
                return
            self.name(plural, key)

    def has(self, plural: str, key: ObjectKey) -> bool:
        """Return True if the run used an object."""
        return (plural, key) in self._named or any((plural, space) in self._kinds for space in (key.namespace, ""))

    def has_release(self, release: ObjectKey) -> bool:
        """Return True if the run read or wrote the state of a helm release."""
        if any((plural, space) in self._kinds for plural in _STORES for space in (release.namespace, "")):
            return True
        return has_state(release, (key for plural, key in self._named if plural in _STORES))


def has_state(release: ObjectKey, keys: Iterable[ObjectKey]) -> bool:
    """Return True if `keys` contains a Secret or ConfigMap of a helm release."""
    beginning = f"{RELEASE}{release.name}.v"
    return any(key.namespace == release.namespace and key.name.startswith(beginning) for key in keys)
