"""Rules for owners of objects that a run writes. Pure.

Rule: no write of a run removes the owner of another resource. Only `inject-owner: "false"` removes an owner, and only
that of the run's own resource. An empty or null list in a merge patch, and a JSON Patch, state the role's own intent.

An update removes what its definition omits, and a merge patch replaces lists. A server-side apply removes what its
field manager applied before, and several resources of a role have the same field manager. `preserved` therefore repeats
these references and annotations of the existing object.

`own` adds the owner to the definition in a create, a server-side apply or an update, and returns the same object if
nothing changes. `adopt` and `give_up` do so for a merge patch of an existing object.

An owner that is being deleted is never added: the garbage collector would delete the object, and what a finalizer
creates must outlive the resource. An object with another owner (a `controller` reference or the annotations of another
resource) is not changed. Must not import: the client, or anything that does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson

from runner.core.kube.discovery import ApiResource
from runner.values.objects import (
    GVK,
    PRIMARY_RESOURCE,
    PRIMARY_RESOURCE_TYPE,
    Object,
    Owner,
    annotations_of,
    managed_fields_of,
    mapping,
    metadata,
    references_of,
)

INJECT_OWNER = "ansible.sdk.operatorframework.io/inject-owner"
"""Annotation: "false": the object gets no owner. An update does not restore the owner, and a merge patch removes it."""
ADOPT = "ansible.sdk.operatorframework.io/adopt"
"""Annotation: "true": an existing object gets the resource as owner, by an apply, an update or a merge patch."""

_PRIMARY = (PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE)
_OF_OWNERS = frozenset({INJECT_OWNER, ADOPT, *_PRIMARY})


class OwnerMark(Enum):
    """How an object refers to its owner."""

    REFERENCE = "reference"
    ANNOTATION = "annotation"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Ownership:
    """A definition, and the decision about its owner."""

    obj: Object = field(repr=False)
    """The definition to send; the same object as the input if nothing changed."""
    how: OwnerMark
    """How the object refers to this owner."""


def wants_adoption(obj: Mapping[str, Any]) -> bool:
    """Return whether a definition or merge patch requests adoption."""
    return annotations_of(obj).get(ADOPT) == "true"


def wants_release(obj: Mapping[str, Any]) -> bool:
    """Return whether a definition or merge patch requests that the object has no owner."""
    return annotations_of(obj).get(INJECT_OWNER) == "false"


def is_about_owners(patch: Mapping[str, Any]) -> bool:
    """Return whether a merge patch concerns the owners of the object."""
    return wants_adoption(patch) or wants_release(patch) or bool(references_of(patch))


def without_annotations(obj: Object) -> Object:
    """Return a definition or merge patch without annotations about owners; the same object if it has none.

    A role can copy annotations that a user wrote, so that a watch can forbid them (`ownerAnnotations: false`).
    """
    items = obj.get("items")
    if isinstance(items, list):
        plain = [without_annotations(item) if isinstance(item, dict) else item for item in items]
        if any(new is not item for new, item in zip(plain, items, strict=True)):
            obj = {**obj, "items": plain}
    annotations = annotations_of(obj)
    if _OF_OWNERS.isdisjoint(annotations):
        return obj
    return _with_metadata(
        obj, {"annotations": {name: annotations[name] for name in annotations if name not in _OF_OWNERS}}
    )


def is_virtual(resource: ApiResource) -> bool:
    """Return whether objects of this kind are not stored: they cannot be listed and watched."""
    return not {"list", "watch"} <= resource.verbs


def own(
    obj: Object,
    owner: Owner,
    resource: ApiResource,
    namespace: str,
    current: Mapping[str, Any] | None = None,
    *,
    manager: str | None = None,
) -> Ownership:
    """Add the owner to a definition.

    `namespace` is the request's. `current` is the existing object (at least its metadata), None if the request creates
    it: then the owner is added. Otherwise all owners are preserved, and this one is added if the definition requests
    adoption. `manager` is the field manager of a server-side apply; None for an update.
    """
    if is_virtual(resource):
        return Ownership(obj, OwnerMark.NONE)
    items = obj.get("items")
    if str(obj.get("kind", "")).endswith("List") and isinstance(items, list) and obj.get("kind") != resource.gvk.kind:
        return _own_items(obj, items, owner, resource, namespace)
    space = _namespace(obj, resource, namespace)
    if current is None:
        return _add(obj, obj, owner, space)
    how = _named(current, owner)
    definition = preserved(obj, current, owner, manager)
    if how is OwnerMark.NONE:
        return _adopted(definition, current, owner, space)
    if wants_release(obj):
        return Ownership(definition, OwnerMark.NONE)
    return Ownership(_with_owner(definition, owner, how), how)


def preserved(obj: Object, current: Mapping[str, Any], owner: Owner, manager: str | None) -> Object:
    """Return a definition with the owners of the existing object that the write would remove.

    These are all of them in an update (`manager` is None), and those that the field manager applied before in a
    server-side apply. `owner` is omitted if the definition releases it.
    """
    applied = None if manager is None else _applied(current, manager)
    obj = _with_references(obj, current, owner, applied)
    existing, mine = annotations_of(current), annotations_of(obj)
    if (wants_release(obj) and _is_annotated(current, owner)) or not mine.keys().isdisjoint(_PRIMARY):
        return obj
    names = _PRIMARY if applied is None else [name for name in _PRIMARY if f"f:{name}" in applied["f:annotations"]]
    kept = {name: existing[name] for name in names if name in existing}
    return _with_metadata(obj, {"annotations": {**mine, **kept}}) if kept else obj


def _with_references(
    obj: Object, current: Mapping[str, Any], owner: Owner, applied: Mapping[str, Collection[str]] | None = None
) -> Object:
    """Return a definition or merge patch with the references of the existing object, or with those that are `applied`.

    They keep their order. A reference to a new object with an old name replaces the one to the former object.
    """
    mine = references_of(obj)
    names, uids = {_name(reference) for reference in mine}, {str(reference.get("uid")) for reference in mine}
    if wants_release(obj):
        uids.add(owner.ref.uid)
    kept = [
        reference
        for reference in references_of(current)
        if _name(reference) not in names
        and str(reference.get("uid")) not in uids
        and (applied is None or _key(reference) in applied["f:ownerReferences"])
    ]
    if not kept:
        return obj
    order = [_name(reference) for reference in references_of(current)]
    references = sorted([*mine, *kept], key=lambda ref: order.index(_name(ref)) if _name(ref) in order else len(order))
    return _with_metadata(obj, {"ownerReferences": references})


def _applied(current: Mapping[str, Any], manager: str) -> dict[str, set[str]]:
    """Return the annotations and references that a field manager applied, as `FieldsV1` spells them."""
    applied: dict[str, set[str]] = {"f:annotations": set(), "f:ownerReferences": set()}
    for entry in managed_fields_of(current):
        if (entry.get("manager"), entry.get("operation")) == (manager, "Apply") and not entry.get("subresource"):
            fields = mapping(mapping(entry.get("fieldsV1")).get("f:metadata"))
            for name, keys in applied.items():
                keys.update(mapping(fields.get(name)))
    return applied


def _key(reference: Mapping[str, Any]) -> str:
    """Return the key of a reference in `FieldsV1`."""
    return "k:" + orjson.dumps({"uid": reference.get("uid")}).decode()


def _name(reference: Mapping[str, Any]) -> str:
    return f"{reference.get('kind')}.{GVK.of(reference).group}/{reference.get('name')}"


def adopt(patch: Object, owner: Owner, resource: ApiResource, namespace: str, current: Mapping[str, Any]) -> Ownership:
    """Add the owner to a merge patch (RFC 7386, or strategic) that requests adoption.

    If the patch then contains owner references, it contains all of the object, because it replaces the list.
    """
    if is_virtual(resource):
        return Ownership(patch, OwnerMark.NONE)
    added = Ownership(patch, _named(current, owner))
    if added.how is OwnerMark.NONE:
        added = _adopted(patch, current, owner, _namespace(patch, resource, namespace))
    if not references_of(added.obj):
        return added
    return Ownership(_with_references(added.obj, current, owner), added.how)


def give_up(patch: Object, owner: Owner, current: Mapping[str, Any], *, strategic: bool) -> Ownership:
    """Remove the owner by a merge patch (RFC 7386, or strategic)."""
    how = _named(current, owner)
    if how is OwnerMark.ANNOTATION:
        gone = {**annotations_of(patch), **dict.fromkeys(_PRIMARY)}
        return Ownership(_with_metadata(patch, {"annotations": gone}), OwnerMark.NONE)
    if references_of(patch) and not strategic:
        return Ownership(_with_references(patch, current, owner), OwnerMark.NONE)
    if how is OwnerMark.NONE or "ownerReferences" in metadata(patch):
        return Ownership(patch, how)  # it has no such owner, or the patch itself sets the owners
    references: list[Object] = [ref for ref in references_of(current) if ref.get("uid") != owner.ref.uid]
    if strategic:
        references = [{"$patch": "delete", "uid": owner.ref.uid}]
    return Ownership(_with_metadata(patch, {"ownerReferences": references}), OwnerMark.NONE)


def _own_items(obj: Object, items: list[Any], owner: Owner, resource: ApiResource, namespace: str) -> Ownership:
    owned = [
        own(item, owner, resource, namespace) if isinstance(item, dict) else Ownership(item, OwnerMark.NONE)
        for item in items
    ]
    how = next((ownership.how for ownership in owned if ownership.how is not OwnerMark.NONE), OwnerMark.NONE)
    if all(ownership.obj is item for ownership, item in zip(owned, items, strict=True)):
        return Ownership(obj, how)
    return Ownership({**obj, "items": [ownership.obj for ownership in owned]}, how)


def _adopted(obj: Object, current: Mapping[str, Any], owner: Owner, namespace: str) -> Ownership:
    """Add the owner to an existing object, if `obj` requests adoption."""
    if not wants_adoption(obj):
        return Ownership(obj, _named(obj, owner))
    return _add(obj, current, owner, namespace)


def _add(obj: Object, existing: Mapping[str, Any], owner: Owner, namespace: str) -> Ownership:
    """Add the owner to `obj`, unless the existing object (`obj` if it is new) has another owner."""
    if wants_release(obj):
        return Ownership(obj, OwnerMark.NONE)
    how = _named(obj, owner)
    if how is not OwnerMark.NONE or owner.is_deleting or _has_another(existing, owner) or _has_another(obj, owner):
        return Ownership(obj, how)
    how = OwnerMark.REFERENCE if owner.may_own_in(namespace) else OwnerMark.ANNOTATION
    return Ownership(_with_owner(obj, owner, how), how)


def _named(obj: Mapping[str, Any], owner: Owner) -> OwnerMark:
    """Return how an object refers to this owner."""
    if any(reference.get("uid") == owner.ref.uid for reference in references_of(obj)):
        return OwnerMark.REFERENCE
    return OwnerMark.ANNOTATION if _is_annotated(obj, owner) else OwnerMark.NONE


def _is_annotated(obj: Mapping[str, Any], owner: Owner) -> bool:
    annotations = annotations_of(obj)
    return all(annotations.get(name) == value for name, value in owner.annotations().items())


def _has_another(obj: Mapping[str, Any], owner: Owner) -> bool:
    """Return whether another resource controls the object, or owns it by annotation."""
    for reference in references_of(obj):
        if reference.get("controller") is True and reference.get("uid") != owner.ref.uid:
            return True
    return not annotations_of(obj).keys().isdisjoint(_PRIMARY) and not _is_annotated(obj, owner)


def _with_owner(obj: Object, owner: Owner, how: OwnerMark) -> Object:
    """Add the owner to `obj`, unless `obj` refers to it."""
    if how is OwnerMark.NONE or _named(obj, owner) is not OwnerMark.NONE:
        return obj
    if how is OwnerMark.REFERENCE:
        return _with_metadata(obj, {"ownerReferences": [*references_of(obj), owner.reference()]})
    return _with_metadata(obj, {"annotations": {**annotations_of(obj), **owner.annotations()}})


def _namespace(obj: Mapping[str, Any], resource: ApiResource, namespace: str) -> str:
    """Return the namespace of the object; empty for cluster-scoped kinds."""
    if not resource.namespaced:
        return ""
    return namespace or metadata(obj).get("namespace") or ""


def _with_metadata(obj: Object, more: Mapping[str, Any]) -> Object:
    return {**obj, "metadata": {**metadata(obj), **more}}
