"""Who is told of what runs do: the dependents that they make, and the references that they write.

Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

from runner.dependents.watching import Dependents
from runner.kube.discovery import ApiResource
from runner.objects import GVK, Object, ObjectKey
from runner.ownership import Owner
from runner.references.watching import References


class Onlookers:
    """Passes on what is told. What of an owner's objects it may ask for is for the dependents to say."""

    def __init__(self, dependents: Dependents, references: References) -> None:
        self._dependents = dependents
        self._references = references

    def began(self, owner: Owner) -> None:
        """A run of `owner` begins."""
        self._dependents.began(owner)
        self._references.began(owner)

    def ended(self, owner: Owner) -> bool:
        """A run of `owner` is over, and all that it wrote was told. Says whether nobody has touched what it owns."""
        undisturbed = self._dependents.ended(owner)
        self._references.ended(owner)
        return undisturbed

    def owned_now(self, gvk: GVK, key: ObjectKey) -> str | None:
        """Digest what an object owns, as far as it has been seen; None when something of it is not known."""
        return self._dependents.owned_now(gvk, key)

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """An owner is gone."""
        self._dependents.forget(gvk, key)

    def wants(self, owner: Owner, resource: ApiResource) -> bool:
        """Whether an object of this kind that the owner's run reads is of interest."""
        return self._dependents.wants(owner, resource)

    def read(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """An object was read."""
        self._dependents.read(owner, resource, obj)

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """An object or a subresource of it was created, updated or patched."""
        self._dependents.wrote(owner, resource, obj)
        self._references.wrote(owner, resource, obj)

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """An object was deleted; `answer` is the object, or a Status about it."""
        self._dependents.deleted(owner, resource, answer)
        self._references.deleted(owner, resource, answer)
