"""Objects of a plan as the API server would store them. Pure."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from runner.core.kube.discovery import ApiResource
from runner.features.plan.trial.overlay import ONLY_PLANNED, PlannedObject
from runner.values.objects import Object, ObjectKey, metadata, uid_of

_IDENTITY = ("name", "namespace", "uid", "creationTimestamp")


def as_new(resource: ApiResource, key: ObjectKey, obj: Object) -> Object:
    """Return an object that is created, with a UID that is the same in each plan."""
    gvk = resource.gvk
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"plan:{gvk.group}/{resource.plural}/{key}"))
    obj = _with_uid(obj, uid)
    meta = {
        "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "generation": 1,
        **without(obj, frozenset({"uid", "resourceVersion"}))["metadata"],
        "name": key.name,
        **({"namespace": key.namespace} if key.namespace else {}),
        "uid": uid,
    }
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, **obj, "metadata": meta}


def _with_uid(obj: Object, uid: str) -> Object:
    """Replace the UID of a dry run wherever the API server put it, such as into the labels of a Job."""
    dry_run_uid = uid_of(obj)
    if not dry_run_uid or dry_run_uid == uid:
        return obj

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(item) for name, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return uid if value == dry_run_uid else value

    changed: Object = replaced(obj)
    return changed


def kept(planned: PlannedObject, obj: Object, *, has_status: bool) -> Object:
    """Return a written object with the identity of the planned one, and its status if that is a subresource."""
    now = planned.after or {}
    if not planned.existed and uid_of(now):
        obj = _with_uid(obj, uid_of(now))
    identity = {name: metadata(now)[name] for name in _IDENTITY if name in metadata(now)}
    merged = {**obj, "metadata": {**metadata(obj), **identity}}
    if planned.state in ONLY_PLANNED:
        merged["metadata"].pop("resourceVersion", None)
    if has_status:
        merged.pop("status", None)
        if "status" in now:
            merged["status"] = now["status"]
    return merged


def scaled(obj: Object, scale: Object) -> Object:
    """Return an object with the replicas of a `Scale`."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return {**obj, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}


def named(obj: Object, name: str) -> Object:
    """Return an object with another name."""
    return {**obj, "metadata": {**metadata(obj), "name": name}}


def without(obj: Object, names: frozenset[str]) -> Object:
    """Return an object without some of its metadata."""
    return {**obj, "metadata": {name: value for name, value in metadata(obj).items() if name not in names}}
