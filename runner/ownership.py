"""Who owns an object: owner references, the two annotations that stand in for them, and how both are read.

An owner reference is possible where the owner is cluster-scoped or lives in the object's own namespace
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/); elsewhere two annotations name
the owner, which controllers follow and the garbage collector does not know. Imports nothing that does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.objects import GVK, Object, ObjectRef, annotations_of, metadata

PRIMARY_RESOURCE = "operator-sdk/primary-resource"
"""Annotation: `namespace/name` of the owner."""
PRIMARY_RESOURCE_TYPE = "operator-sdk/primary-resource-type"
"""Annotation: `Kind.group` of the owner; `Kind` alone for the core group."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An object that a run is for."""

    ref: ObjectRef
    namespaced: bool
    """Whether the kind lives in namespaces."""

    def may_own_in(self, namespace: str) -> bool:
        """Whether an owner reference to it is possible from `namespace` (empty: from a cluster-scoped object)."""
        return not self.namespaced or (bool(namespace) and namespace == self.ref.key.namespace)

    def reference(self) -> Object:
        """The owner reference to it.

        Without `controller`, so that several may own an object, and without `blockOwnerDeletion`, which needs a right
        to the owner's finalizers that projects do not grant.
        """
        return {
            "apiVersion": self.ref.gvk.api_version,
            "kind": self.ref.gvk.kind,
            "name": self.ref.key.name,
            "uid": self.ref.uid,
        }

    def annotations(self) -> dict[str, str]:
        """The annotations that name it."""
        return {
            PRIMARY_RESOURCE: f"{self.ref.key.namespace}/{self.ref.key.name}",
            PRIMARY_RESOURCE_TYPE: type_name(self.ref.gvk),
        }


@dataclass(frozen=True, slots=True, order=True)
class OwnerClaim:
    """An owner as an object names it. The version tells nothing: references outlive it."""

    group: str
    kind: str
    name: str
    namespace: str
    """Where the owner is, should its kind live in namespaces."""
    by_annotation: bool


def type_name(gvk: GVK) -> str:
    """Spell a kind as the type annotation does."""
    return f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind


def references_of(obj: Mapping[str, Any]) -> list[Object]:
    """Read `metadata.ownerReferences`."""
    found = metadata(obj).get("ownerReferences")
    return [reference for reference in found if isinstance(reference, dict)] if isinstance(found, list) else []


def claims_of(obj: Mapping[str, Any]) -> tuple[OwnerClaim, ...]:
    """Read every owner that an object names, by reference or by annotation."""
    namespace = metadata(obj).get("namespace") or ""
    claims = [
        OwnerClaim(
            GVK.of(reference).group,
            str(reference.get("kind", "")),
            str(reference.get("name", "")),
            namespace,
            by_annotation=False,
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
