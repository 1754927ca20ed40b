"""Owners of an object: owner references, and the two annotations that replace them.

An owner reference requires a cluster-scoped owner or one in the object's namespace
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/). In other cases two annotations
name the owner; controllers use them, but the garbage collector does not. Imports nothing that does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runner.values.objects import GVK, RECORD_OF, Object, ObjectRef, annotations_of, maps, metadata

PRIMARY_RESOURCE = "operator-sdk/primary-resource"
"""Annotation: `namespace/name` of the owner."""
PRIMARY_RESOURCE_TYPE = "operator-sdk/primary-resource-type"
"""Annotation: `Kind.group` of the owner; `Kind` alone for the core group."""


class OwnerState(Enum):
    """State of a run's object at the API server."""

    EXISTS = "exists"
    GONE = "gone"
    """It was deleted."""
    REPLACED = "replaced"
    """It was deleted, and another object has its name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that a run reconciles."""

    ref: ObjectRef
    namespaced: bool
    """True if the kind is namespaced."""
    is_deleting: bool = field(default=False, compare=False)
    """True in a run of the finalizer: the object is being deleted, and with it would be all that it gets to own."""

    def may_own_in(self, namespace: str) -> bool:
        """Return True if an object in `namespace` (empty: cluster-scoped) can have an owner reference to it."""
        return not self.namespaced or (bool(namespace) and namespace == self.ref.key.namespace)

    def reference(self) -> Object:
        """Return the owner reference.

        It omits `controller`, so that an object can have several owners. It omits `blockOwnerDeletion`, which needs a
        permission for the owner's finalizers that projects do not grant.
        """
        return {
            "apiVersion": self.ref.gvk.api_version,
            "kind": self.ref.gvk.kind,
            "name": self.ref.key.name,
            "uid": self.ref.uid,
        }

    def annotations(self) -> dict[str, str]:
        """Return the annotations that name the owner."""
        return {
            PRIMARY_RESOURCE: f"{self.ref.key.namespace}/{self.ref.key.name}",
            PRIMARY_RESOURCE_TYPE: type_name(self.ref.gvk),
        }


@dataclass(frozen=True, slots=True, order=True)
class OwnerClaim:
    """An owner as an object names it. It has no version, because the version in a reference can be outdated."""

    group: str
    kind: str
    name: str
    namespace: str
    """The owner's namespace if its kind is namespaced."""
    by_annotation: bool
    uid: str = ""
    """UID of the owner in a reference."""


def type_name(gvk: GVK) -> str:
    """Return a kind as `kubectl` and the type annotation spell it: `Kind.group`; `Kind` for the core group."""
    return f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind


def references_of(obj: Mapping[str, Any]) -> list[Object]:
    """Read `metadata.ownerReferences`."""
    return maps(metadata(obj).get("ownerReferences"))


def claims_of(obj: Mapping[str, Any]) -> tuple[OwnerClaim, ...]:
    """Return every owner that an object names, by reference or by annotation.

    An object that only the operator writes has none, so that its changes start no run.
    """
    if RECORD_OF in annotations_of(obj):
        return ()
    namespace = metadata(obj).get("namespace") or ""
    claims = [
        OwnerClaim(
            GVK.of(reference).group,
            str(reference.get("kind", "")),
            str(reference.get("name", "")),
            namespace,
            by_annotation=False,
            uid=str(reference.get("uid", "")),
        )
        for reference in references_of(obj)
    ]
    annotations = annotations_of(obj)
    owner, type_ = annotations.get(PRIMARY_RESOURCE), annotations.get(PRIMARY_RESOURCE_TYPE)
    if owner and type_:
        kind, _, group = type_.partition(".")
        space, _, name = owner.rpartition("/")
        claims.append(OwnerClaim(group, kind, name, space, by_annotation=True))
    return tuple(sorted(set(claims)))
