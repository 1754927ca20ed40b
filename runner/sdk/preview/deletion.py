"""Objects that Kubernetes deletes together with a resource, because of their owner references."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runner.core.kube import discovery
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource
from runner.core.proxy import request
from runner.features.plan.changes import ObjectChange
from runner.features.plan.trial.overlay import KindId, Overlay
from runner.features.prune.record import KEEP
from runner.values.errors import ApiError
from runner.values.objects import (
    GVK,
    RECORD_OF,
    Object,
    ObjectKey,
    ObjectRef,
    annotations_of,
    is_deleting,
    key_of,
    references_of,
    uid_of,
)

_PAGE = 500
_SKIPPED = {"events", "leases"}
"""Resources that are not part of a plan."""


class Owned(NamedTuple):
    """An object that has owners."""

    gvk: GVK
    key: ObjectKey
    uid: str
    owners: frozenset[str]
    """UIDs."""
    plural: str = ""
    is_kept: bool = False
    """True for a record of the operator, for one that `prune` keeps, and for one that is being deleted."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Objects that are deleted."""

    changes: tuple[ObjectChange, ...]
    unknown: str
    """Why the list can be incomplete; empty if it is complete."""


def collected(uid: str, objects: Iterable[Owned]) -> list[Owned]:
    """Return the objects all of whose owners are deleted with the object `uid`, in the order of deletion. Pure."""
    deleted_uids, remaining = {uid}, list(objects)
    deleted: list[Owned] = []
    while ready := [obj for obj in remaining if obj.owners <= deleted_uids and obj.uid not in deleted_uids]:
        deleted += ready
        deleted_uids |= {obj.uid for obj in ready}
        remaining = [obj for obj in remaining if obj.uid not in deleted_uids]
    return deleted


async def find(client: Client, resource: ApiResource, obj: Object) -> Collected:
    """Return the deletion of a resource itself, and of its dependents in its namespace.

    Raises:
        ApiUnavailableError: the API server cannot be reached.
    """
    key = key_of(obj)
    unknown: list[str] = []
    owned = await dependents(client, key.namespace, unknown)
    deleted = collected(uid_of(obj), sorted(owned))
    changes = [ObjectChange("delete", resource.gvk, key, ())]
    changes += [ObjectChange("delete", dependent.gvk, dependent.key, (), is_collected=True) for dependent in deleted]
    more = f" and {len(unknown) - 1} more kinds" if len(unknown) > 1 else ""
    reason = f"dependents that Kubernetes also deletes are unknown: {unknown[0]}{more}" if unknown else ""
    return Collected(tuple(changes), reason)


async def dependents(client: Client, namespace: str, unknown: list[str]) -> list[Owned]:
    """Return the objects with owners in a namespace (empty: all). `unknown` gets why a kind is missing.

    Raises:
        ApiUnavailableError: the API server cannot be reached.
    """
    owned: list[Owned] = []
    for kind in await _kinds(client, unknown):
        if kind.namespaced or not namespace:
            try:
                owned += [dependent async for dependent in _owned(client, kind, namespace)]
            except ApiError as error:
                unknown.append(f"{kind.qualified}: {error}")
    return owned


def unwritten(uid: str, owned: Iterable[Owned], overlay: Overlay) -> list[ObjectRef]:
    """Return the objects whose only owner is `uid`, and that a run neither wrote nor read. Pure.

    A list uses all objects of its kind in the namespace.
    """
    read = {
        (info.group, info.resource, info.namespace, info.name)
        for info in (request.parse("GET", path) for path in overlay.reads)
    }
    unused: list[ObjectRef] = []
    for obj in owned:
        kind = (obj.gvk.group, obj.plural)
        requests = ((*kind, *obj.key), (*kind, obj.key.namespace, ""), (*kind, "", ""))
        if obj.owners == {uid} and not obj.is_kept and read.isdisjoint(requests):
            unused += [ObjectRef(obj.gvk, obj.key)] if overlay.find(KindId(*kind), obj.key) is None else []
    return unused


async def _kinds(client: Client, unknown: list[str]) -> Sequence[ApiResource]:
    """Return the kinds that can be listed, each in its preferred version."""
    groups = (await client.request("GET", "/apis")).get("groups") or []
    versions = [("", "v1"), *((str(entry["name"]), str(entry["preferredVersion"]["version"])) for entry in groups)]
    kinds: list[ApiResource] = []
    for group, version in versions:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            served = discovery.parse(group, version, await client.request("GET", path))
        except ApiError as error:  # an aggregated API server that does not respond
            unknown.append(f"{group}: {error}")
            continue
        kinds += [kind for kind in served.values() if "list" in kind.verbs and kind.plural not in _SKIPPED]
    return kinds


async def _owned(client: Client, resource: ApiResource, namespace: str) -> AsyncIterator[Owned]:
    cont = ""
    while True:
        page = await client.list_page(resource, namespace, Selection(metadata_only=True), _PAGE, cont, warns=False)
        for obj in page.items:
            owners = frozenset(str(reference.get("uid")) for reference in references_of(obj))
            if owners:
                marks = annotations_of(obj)
                is_kept = RECORD_OF in marks or marks.get(KEEP) == "false" or is_deleting(obj)
                yield Owned(resource.gvk, key_of(obj), uid_of(obj), owners, resource.plural, is_kept)
        cont = page.cont
        if not cont:
            return
