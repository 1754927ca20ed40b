"""Results of a plan run: planned changes and refused requests. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from runner.objects import GVK, Object, ObjectKey, metadata

Verb: TypeAlias = Literal["create", "change", "delete"]

_SET_BY_SERVER = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid", "generateName"}
)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Net change of one object: its state before the run's first write, and after its last one."""

    verb: Verb
    gvk: GVK
    key: ObjectKey
    before: Object | None = field(repr=False)
    """None if the object does not exist, or if the run may not read it."""
    after: Object | None = field(repr=False)
    writes: int
    """Number of the run's writes of this object."""
    recreated: bool = False
    """True if the run deletes an existing object and creates it again; `verb` is then `change`."""
    reason: str = ""
    """Why the API server did not accept the last write as a dry run; empty if it did."""

    @property
    def validated(self) -> bool:
        """True if the API server accepted the last write as a dry run."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the proxy refused, because the API server cannot dry-run it or the plan cannot answer it."""

    verb: str
    """Verb as in RBAC, such as `create`; the method for non-resource requests."""
    resource: str
    """Resource and subresource, such as `pods/exec`; the path for non-resource requests."""
    key: ObjectKey
    """Namespace and name in the request; both can be empty."""
    reason: str


def comparable(obj: Object) -> Object:
    """Return an object without the metadata that the API server sets on each write."""
    kept = {name: value for name, value in metadata(obj).items() if name not in _SET_BY_SERVER}
    return {**obj, "metadata": kept}
