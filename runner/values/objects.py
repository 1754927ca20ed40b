"""Identifiers of kinds and objects, accessors for the API's plain dicts, and owners.

Objects stay the dicts that the API server sent (https://kubernetes.io/docs/reference/using-api/api-concepts/).

An owner reference requires a cluster-scoped owner or one in the object's namespace
(https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/). In other cases two annotations
name the owner; controllers use them, but the garbage collector does not.

Rule: a value that another client wrote can have any shape. One function reads each structure of an object, and accepts
each shape. Imports nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

PREFIX = "ansible.sdk.operatorframework.io/"
"""Prefix of the annotations by which users control the operator."""

PAUSED = PREFIX + "paused"
"""Annotation: `"true"` pauses all runs of the object, including its finalizer."""

RUN_REQUESTED = PREFIX + "run-requested"
"""Annotation: each new value starts a run of the object."""

MODE = PREFIX + "mode"
"""Annotation: mode of the object's runs, at least as strict as that of the watch."""

RECORD_OF = PREFIX + "plan-of"
"""Annotation of an object that the operator alone writes, about another one: its UID. A change of it starts no run."""

LAST_RUN = PREFIX + "last-run"
"""Annotation: the operator's record of the last successful run. Its changes are ignored."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of `kubectl apply`: the object as it was applied, in JSON."""

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

    @property
    def name(self) -> str:
        """Name as kubectl spells it: `Deployment.v1.apps`."""
        return f"{self.kind}.{self.version}.{self.group}".rstrip(".")

    @classmethod
    def named(cls, name: str) -> GVK:
        """Return the GVK with a `name`."""
        kind, _, rest = name.partition(".")
        version, _, group = rest.partition(".")
        return cls(group, version, kind)


class ObjectKey(NamedTuple):
    """Namespace (empty for cluster-scoped objects) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """An object by its kind and key. The `uid` is optional and is not compared."""

    gvk: GVK
    key: ObjectKey
    uid: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.key}"

    @classmethod
    def of(cls, gvk: GVK, obj: Mapping[str, Any]) -> ObjectRef:
        """Return the reference to an object of a kind."""
        return cls(gvk, key_of(obj), uid_of(obj))


def mapping(value: object) -> dict[str, Any]:
    """Return a value that should be a map; empty if it is none."""
    return value if isinstance(value, dict) else {}


def maps(value: object) -> list[dict[str, Any]]:
    """Return the maps in a value that should be a list of maps; empty if it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Read the object's metadata, empty when it has none."""
    return mapping(obj.get("metadata"))


def key_of(obj: Mapping[str, Any]) -> ObjectKey:
    """Read namespace and name."""
    meta = metadata(obj)
    return ObjectKey(meta.get("namespace") or "", meta.get("name") or "")


def uid_of(obj: Mapping[str, Any]) -> str:
    """Read `metadata.uid`."""
    return metadata(obj).get("uid") or ""


def version_of(obj: Mapping[str, Any]) -> str:
    """Read `metadata.resourceVersion`."""
    return str(metadata(obj).get("resourceVersion") or "")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Return True if the object has a deletion timestamp."""
    return bool(metadata(obj).get("deletionTimestamp"))


def deleted_for(obj: Mapping[str, Any], now: datetime) -> float:
    """Return the seconds since the deletion was requested; 0 if it was not."""
    requested_at = metadata(obj).get("deletionTimestamp")
    try:
        return max((now - datetime.fromisoformat(str(requested_at))).total_seconds(), 0.0) if requested_at else 0.0
    except (ValueError, TypeError):
        return 0.0


def created_at(obj: Mapping[str, Any]) -> float:
    """Return the creation time in seconds since the epoch; 0 if it is missing or invalid."""
    try:
        return datetime.fromisoformat(metadata(obj).get("creationTimestamp") or "").timestamp()
    except (ValueError, TypeError):
        return 0.0


def is_paused(obj: Mapping[str, Any]) -> bool:
    """Return True if the object is annotated as paused."""
    return str(annotations_of(obj).get(PAUSED, "")).lower() == "true"


def mode_requested(obj: Mapping[str, Any]) -> str:
    """Return the value of the annotation that sets the mode of runs; empty if it is not set."""
    return str(annotations_of(obj).get(MODE, ""))


class LastResult(Enum):
    """Result of the last run of an object, according to its status."""

    NONE = "never ran"
    OUTDATED = "changed since its last result"
    FAILED = "its last run failed"
    SUCCEEDED = ""


def last_result(obj: Mapping[str, Any]) -> LastResult:
    """Return the result of the last run. A run that did not end is none for the current generation."""
    conditions = {str(condition.get("type")): condition for condition in conditions_of(obj)}
    running = conditions.get("Running", {})
    was_interrupted = (running.get("status"), running.get("reason")) == ("True", "Running")
    results = [conditions[kind] for kind in ("Successful", "Failure") if kind in conditions]
    if not results and (not running or was_interrupted):
        return LastResult.NONE
    observed = [result["observedGeneration"] for result in results if isinstance(result.get("observedGeneration"), int)]
    generation = metadata(obj).get("generation")
    if was_interrupted or (observed and isinstance(generation, int) and max(observed) < generation):
        return LastResult.OUTDATED
    return LastResult.FAILED if conditions.get("Failure", {}).get("status") == "True" else LastResult.SUCCEEDED


def conditions_of(obj: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read `status.conditions`: the entries that are maps, and of each type the first one."""
    by_type: dict[object, dict[str, Any]] = {}
    for condition in maps(mapping(obj.get("status")).get("conditions")):
        kind = condition.get("type")
        by_type.setdefault(kind if isinstance(kind, str) else id(condition), condition)
    return list(by_type.values())


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    """Read `metadata.finalizers`."""
    finalizers = metadata(obj).get("finalizers")
    return [finalizer for finalizer in finalizers if isinstance(finalizer, str)] if isinstance(finalizers, list) else []


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Read `metadata.annotations`."""
    return mapping(metadata(obj).get("annotations"))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Read `metadata.labels`."""
    return mapping(metadata(obj).get("labels"))


def managed_fields_of(obj: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read `metadata.managedFields`."""
    return maps(metadata(obj).get("managedFields"))


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first names as a list with commas, followed by the number of remaining names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


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
