"""Makes what a run writes owned by the object that the run is for. Pure.

`own` takes the definition that a create, a server-side apply or an update sends, and returns it with the owner in it,
or the same object where nothing is to be done; `adopt` and `give_up` do so for a merge patch of an object that exists.

A role may say otherwise on the object itself, by annotations that stay on it:

- `ansible.sdk.operatorframework.io/inject-owner: "false"`: this object gets no owner; an update keeps none,
  and a merge patch that does takes it away. It outlives the resource and its changes start no run.
- `ansible.sdk.operatorframework.io/adopt: "true"`: an object that exists already and that nobody owns becomes the
  resource's own when the role applies, updates or patches it (JSON Patch excepted, which has no definition to read).

Rules: an owner stands in an object once. Who controls an object (a `controller` reference of another) or is named by
its annotations owns it: it is left alone. Virtual resources, which cannot be listed and watched, and subresources have
no owner. Must not import: the client, or anything that does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runner.kube.discovery import ApiResource
from runner.objects import Object, annotations_of, metadata
from runner.ownership import PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE, Owner, references_of

INJECT_OWNER = "ansible.sdk.operatorframework.io/inject-owner"
"""Annotation: "false" keeps an object without owner."""
ADOPT = "ansible.sdk.operatorframework.io/adopt"
"""Annotation: "true" makes an existing object that nobody owns the resource's own."""

_PRIMARY = (PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE)


class OwnerMark(Enum):
    """By what an object names its owner."""

    REFERENCE = "reference"
    ANNOTATION = "annotation"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Ownership:
    """A definition, and what was done about its owner."""

    obj: Object = field(repr=False)
    """The definition to send: the very object that was given where nothing changed."""
    how: OwnerMark
    """By what the object names this owner now."""
    why: str
    """Why it does not, or that it does; for the log."""


def wants_adoption(obj: Mapping[str, Any]) -> bool:
    """Whether a definition or merge patch asks that the object be adopted, should it exist and have no owner."""
    return annotations_of(obj).get(ADOPT) == "true"


def wants_release(obj: Mapping[str, Any]) -> bool:
    """Whether a definition or merge patch says that the object is to have no owner."""
    return annotations_of(obj).get(INJECT_OWNER) == "false"


def is_virtual(resource: ApiResource) -> bool:
    """Whether objects of this kind are only answers: they cannot be listed and watched, hence not be owned."""
    return not {"list", "watch"} <= resource.verbs


def own(
    obj: Object,
    owner: Owner,
    resource: ApiResource,
    namespace: str,
    current: Mapping[str, Any] | None = None,
    *,
    replaces: bool = False,
) -> Ownership:
    """Put the owner into a definition that is to become the object.

    `namespace` is the request's. `current` is the object that exists under that name (its metadata suffice), None when
    this request creates it: then the owner is added; else it is kept, or taken on when the definition asks for that.
    `replaces`: what the definition leaves out goes away, as in an update; in a server-side apply only what the same
    field manager applied before does.
    """
    if is_virtual(resource):
        return Ownership(obj, OwnerMark.NONE, f"{resource.qualified} is virtual")
    items = obj.get("items")
    if str(obj.get("kind", "")).endswith("List") and isinstance(items, list) and obj.get("kind") != resource.gvk.kind:
        return _own_items(obj, items, owner, resource, namespace)
    space = _namespace(obj, resource, namespace)
    if current is None:
        return _add(obj, obj, owner, space)
    how = _named(current, owner)
    if how is OwnerMark.NONE:
        return _taken_on(obj, current, owner, space)
    if wants_release(obj):
        return Ownership(obj, OwnerMark.NONE, f"annotation {INJECT_OWNER}")
    return Ownership(keep_owner(current, obj, owner) if replaces else _with_owner(obj, owner, how), how, "kept")


def adopt(patch: Object, owner: Owner, resource: ApiResource, namespace: str, current: Mapping[str, Any]) -> Ownership:
    """Put the owner into a merge patch (RFC 7386, or strategic) of an object that exists, when the patch asks for it.

    References that the object has are written out in it.
    """
    if is_virtual(resource):
        return Ownership(patch, OwnerMark.NONE, f"{resource.qualified} is virtual")
    how = _named(current, owner)
    if how is not OwnerMark.NONE:
        return Ownership(patch, how, "it is owned already")
    added = _taken_on(patch, current, owner, _namespace(patch, resource, namespace))
    if added.obj is patch or added.how is not OwnerMark.REFERENCE or "ownerReferences" in metadata(patch):
        return added
    # A merge patch replaces lists whole.
    references = [*references_of(current), owner.reference()]
    return Ownership(_with_metadata(patch, {"ownerReferences": references}), OwnerMark.REFERENCE, added.why)


def give_up(patch: Object, owner: Owner, current: Mapping[str, Any], *, strategic: bool) -> Ownership:
    """Take the owner away by a merge patch (RFC 7386, or strategic) of an object that it owns."""
    how = _named(current, owner)
    if how is OwnerMark.NONE or "ownerReferences" in metadata(patch):
        return Ownership(patch, how, "it has no such owner, or the patch itself says who owns it")
    if how is OwnerMark.ANNOTATION:
        gone = {**annotations_of(patch), **dict.fromkeys(_PRIMARY)}
        return Ownership(_with_metadata(patch, {"annotations": gone}), OwnerMark.NONE, "given up")
    references: list[Object] = [each for each in references_of(current) if each.get("uid") != owner.ref.uid]
    if strategic:
        references = [{"$patch": "delete", "uid": owner.ref.uid}]
    return Ownership(_with_metadata(patch, {"ownerReferences": references}), OwnerMark.NONE, "given up")


def keep_owner(current: Mapping[str, Any], new: Object, owner: Owner) -> Object:
    """Return `new`, which replaces `current`, with the owner that it has and `new` forgot; else `new` itself.

    A definition that names no owner at all knows of none, so that every reference is kept; one that names some means
    what it says, but for ours.
    """
    how = _named(current, owner)
    if how is OwnerMark.REFERENCE and not references_of(new):
        return _with_metadata(new, {"ownerReferences": references_of(current)})
    return _with_owner(new, owner, how)


def _own_items(obj: Object, items: list[Any], owner: Owner, resource: ApiResource, namespace: str) -> Ownership:
    owned = [
        own(item, owner, resource, namespace)
        if isinstance(item, dict)
        else Ownership(item, OwnerMark.NONE, "no object")
        for item in items
    ]
    how = next((each.how for each in owned if each.how is not OwnerMark.NONE), OwnerMark.NONE)
    if all(each.obj is item for each, item in zip(owned, items, strict=True)):
        return Ownership(obj, how, "nothing to add")
    return Ownership({**obj, "items": [each.obj for each in owned]}, how, f"{len(items)} items")


def _taken_on(obj: Object, current: Mapping[str, Any], owner: Owner, namespace: str) -> Ownership:
    """Adopt what exists without this owner, if `obj` asks for it."""
    if not wants_adoption(obj):
        return Ownership(obj, _named(obj, owner), "it exists already")
    return _add(obj, current, owner, namespace)


def _add(obj: Object, standing: Mapping[str, Any], owner: Owner, namespace: str) -> Ownership:
    """Add the owner to `obj`, unless someone owns what stands there (`obj` itself where it is new)."""
    if wants_release(obj):
        return Ownership(obj, OwnerMark.NONE, f"annotation {INJECT_OWNER}")
    how = _named(obj, owner)
    if how is not OwnerMark.NONE:
        return Ownership(obj, how, "it names the owner itself")
    for seen in (standing, obj):
        other = _another(seen, owner)
        if other:
            return Ownership(obj, OwnerMark.NONE, other)
    how = OwnerMark.REFERENCE if owner.may_own_in(namespace) else OwnerMark.ANNOTATION
    return Ownership(_with_owner(obj, owner, how), how, "added")


def _named(obj: Mapping[str, Any], owner: Owner) -> OwnerMark:
    """By what an object names this owner."""
    if any(reference.get("uid") == owner.ref.uid for reference in references_of(obj)):
        return OwnerMark.REFERENCE
    return OwnerMark.ANNOTATION if _is_annotated(obj, owner) else OwnerMark.NONE


def _is_annotated(obj: Mapping[str, Any], owner: Owner) -> bool:
    found = annotations_of(obj)
    return all(found.get(name) == value for name, value in owner.annotations().items())


def _another(obj: Mapping[str, Any], owner: Owner) -> str:
    """Say who else owns an object; empty when nobody does."""
    for reference in references_of(obj):
        if reference.get("controller") is True and reference.get("uid") != owner.ref.uid:
            return f"{reference.get('kind')} {reference.get('name')} controls it"
    found = annotations_of(obj)
    if any(name in found for name in _PRIMARY) and not _is_annotated(obj, owner):
        return f"{found.get(PRIMARY_RESOURCE_TYPE)} {found.get(PRIMARY_RESOURCE)} owns it by annotation"
    return ""


def _with_owner(obj: Object, owner: Owner, how: OwnerMark) -> Object:
    """Name the owner in `obj`, unless it is named there."""
    if how is OwnerMark.NONE or _named(obj, owner) is not OwnerMark.NONE:
        return obj
    if how is OwnerMark.REFERENCE:
        return _with_metadata(obj, {"ownerReferences": [*references_of(obj), owner.reference()]})
    return _with_metadata(obj, {"annotations": {**annotations_of(obj), **owner.annotations()}})


def _namespace(obj: Mapping[str, Any], resource: ApiResource, namespace: str) -> str:
    """Where the object is going to be; empty for cluster-scoped kinds, whatever the definition says."""
    if not resource.namespaced:
        return ""
    return namespace or metadata(obj).get("namespace") or ""


def _with_metadata(obj: Object, more: Mapping[str, Any]) -> Object:
    return {**obj, "metadata": {**metadata(obj), **more}}
