"""Names of kinds and objects, and readers over the API's plain dicts.

Owns: `GVK`, `ObjectKey`, and the few readers everybody needs. Objects stay the dicts that the API server sent
(https://kubernetes.io/docs/reference/using-api/api-concepts/). Imports nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

PAUSED = "ansible.sdk.operatorframework.io/paused"
"""Annotation: `"true"` on an object keeps it from being run, finalized included."""

RUN_REQUESTED = "ansible.sdk.operatorframework.io/run-requested"
"""Annotation: whenever it gets another value, whatever that is, the object is run."""

LAST_RUN = "ansible.sdk.operatorframework.io/last-run"
"""Annotation: our record of a run that succeeded. A change of it is nobody's."""

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as the API server sent it."""

JSONPatch: TypeAlias = list[dict[str, Any]]
"""Operations of RFC 6902."""


@dataclass(frozen=True, slots=True, order=True)
class GVK:
    """Group, version and kind. `group` is empty for the core group."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version}, Kind={self.kind}"

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> GVK:
        """Read the GVK of an object."""
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        return cls(group, version, str(obj.get("kind", "")))


class ObjectKey(NamedTuple):
    """Namespace (empty for cluster-scoped objects) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """An object by its kind and key. The `uid`, where it is known, is not compared."""

    gvk: GVK
    key: ObjectKey
    uid: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.key}"

    @classmethod
    def of(cls, gvk: GVK, obj: Mapping[str, Any]) -> ObjectRef:
        """Return the reference to an object of a kind."""
        return cls(gvk, key_of(obj), uid_of(obj))


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Read the object's metadata, empty when it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """Read namespace and name."""
    meta = metadata(obj)
    return ObjectKey(meta.get("namespace") or "", meta.get("name") or "")


def uid_of(obj: Mapping[str, Any]) -> str:
    """Read `metadata.uid`."""
    return metadata(obj).get("uid") or ""


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether a deletion was asked for."""
    return bool(metadata(obj).get("deletionTimestamp"))


def deleted_for(obj: Mapping[str, Any], now: datetime) -> float:
    """Seconds since the deletion was asked for; 0 when it was not."""
    asked = metadata(obj).get("deletionTimestamp")
    try:
        return max((now - datetime.fromisoformat(str(asked))).total_seconds(), 0.0) if asked else 0.0
    except (ValueError, TypeError):
        return 0.0


def created_at(obj: Mapping[str, Any]) -> float:
    """When the object was created, in seconds since the epoch; 0 where it does not say."""
    try:
        return datetime.fromisoformat(metadata(obj).get("creationTimestamp") or "").timestamp()
    except (ValueError, TypeError):
        return 0.0


def is_paused(obj: Mapping[str, Any]) -> bool:
    """Whether somebody asked for the object to be left as it is."""
    return str(annotations_of(obj).get(PAUSED, "")).lower() == "true"


def run_requested(obj: Mapping[str, Any]) -> str:
    """Read what somebody has written to have the object run; empty where nobody has."""
    return str(annotations_of(obj).get(RUN_REQUESTED, ""))


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    """Read `metadata.finalizers`."""
    return metadata(obj).get("finalizers") or []


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Read `metadata.annotations`."""
    return metadata(obj).get("annotations") or {}
