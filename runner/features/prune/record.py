"""Record of the objects that runs of one resource created, and the decision which of them are unused. Pure.

An entry begins as an intent, before the object is created, and has a UID afterwards. An object is unused if two
consecutive complete runs did not use it, after generation or content changed (decision 32).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from runner.features.prune.coverage import Coverage, Omission
from runner.features.prune.fields import PrunePolicy
from runner.features.prune.uses import RELEASE, UseDigests, UsedObjects, Uses, has_state
from runner.values.objects import (
    GVK,
    PRIMARY_RESOURCE,
    PRIMARY_RESOURCE_TYPE,
    Object,
    ObjectKey,
    Owner,
    annotations_of,
    created_at,
    is_deleting,
    managed_fields_of,
    references_of,
    uid_of,
)

MOST_OBJECTS = 1000
"""Objects in a record."""
_CLOCK_SKEW = 10
"""Seconds by which the clock of the API server may be behind that of the operator."""
_MOST_TASKS = 4
"""Tasks of one object."""
CONFIRMED = 2
"""Complete runs in a row that do not use an object until it is pruned."""
KEEP = "ansible.sdk.operatorframework.io/prune"
"""Annotation: "false": the object is never pruned."""

_PROTECTED = {
    "Secret": "",
    "PersistentVolumeClaim": "",
    "Namespace": "",
    "CustomResourceDefinition": "apiextensions.k8s.io",
}
"""Kinds with their groups that are pruned only if a watch names them."""
_HELM_KEEP, _HELM_HOOK = "helm.sh/resource-policy", "helm.sh/hook"
_HELM_NAME, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


@dataclass(frozen=True, slots=True)
class Basis:
    """Inputs of a run that used an object."""

    generation: str
    """Generation of the resource; a digest of its content if the kind has no generation."""
    content: str
    """Digest of the executed content."""
    omitted: tuple[str, ...] = ()
    """Digests of executed or skipped tasks because of which other tasks did not run, with repetitions, sorted."""

    def is_changed(self, other: Basis) -> bool:
        """Return True if resource or content differ."""
        return (self.generation, self.content) != (other.generation, other.content)


class ObjectId(NamedTuple):
    """Name of an entry."""

    group: str
    plural: str
    key: ObjectKey


@dataclass(slots=True)
class CreatedObject:
    """An entry."""

    gvk: GVK
    plural: str
    key: ObjectKey
    basis: Basis
    """Inputs of the last run that used the object."""
    uid: str = ""
    """Empty until the creation is confirmed."""
    intended: int = 0
    """Time of an unconfirmed creation, in seconds since the epoch; 0: there is none."""
    release: str = ""
    """`namespace/name` of the helm release that the object belongs to."""
    unused: int = 0
    """Complete runs in a row, at most `CONFIRMED`, that did not use the object after a change."""
    tasks: tuple[str, ...] = ()
    """Digests of the tasks that used the object in that run; empty if not known."""
    exempt: bool = False
    """Whether the object is never unused, because complete runs do not touch it: a handler, a hook of helm, or helm
    without a release created it."""

    @property
    def id(self) -> ObjectId:
        """Name of the entry."""
        return ObjectId(self.gvk.group, self.plural, self.key)

    def __str__(self) -> str:
        return f"{self.gvk.kind} {self.key}"

    def found(self, obj: Object) -> None:
        """Note the created object as the API server returned it."""
        annotations = annotations_of(obj)
        name = annotations.get(_HELM_NAME)
        by_helm = any(entry.get("manager") == "helm" for entry in managed_fields_of(obj))
        self.exempt = _HELM_HOOK in annotations or (by_helm and not name)
        self.release = f"{annotations.get(_HELM_NAMESPACE, self.key.namespace)}/{name}" if name else ""
        self.uid, self.intended = uid_of(obj), 0


@dataclass(slots=True)
class CreationRecord:
    """Record of one resource."""

    objects: dict[ObjectId, CreatedObject] = field(default_factory=dict)
    uses: UseDigests | None = None
    """Objects that the runs used; see `ResourceUses`."""
    omitted: tuple[str, ...] = ()
    """Digests of the tasks because of which a run hid no use."""

    def intend(self, gvk: GVK, plural: str, key: ObjectKey, basis: Basis, now: float) -> bool:
        """Note that a run is about to create an object. Return False if the record is full."""
        ident = ObjectId(gvk.group, plural, key)
        entry = self.objects.get(ident)
        if entry is None:
            if len(self.objects) >= MOST_OBJECTS:
                return False
            entry = self.objects[ident] = CreatedObject(gvk, plural, key, basis)
        entry.intended = int(now)
        return True

    def withdraw(self, ident: ObjectId) -> None:
        """Note that the object was not created."""
        entry = self.objects.get(ident)
        if entry is None:
            return
        entry.intended = 0
        if not entry.uid:
            del self.objects[ident]

    def drop(self, entry: CreatedObject) -> None:
        """Remove an entry."""
        self.objects.pop(entry.id, None)

    def intents(self) -> list[CreatedObject]:
        """Return the entries with an unconfirmed creation."""
        return [entry for entry in self.objects.values() if entry.intended]

    def resolve(self, entry: CreatedObject, obj: Object | None, owner: Owner) -> None:
        """Confirm or withdraw an intent with the object that exists now, None if there is none."""
        if obj is not None and uid_of(obj) == entry.uid:
            entry.intended = 0
        elif obj is not None and created_at(obj) >= entry.intended - _CLOCK_SKEW and not reason_to_keep(obj, owner):
            entry.found(obj)
            entry.unused = 0
        else:
            self.withdraw(entry.id)

    def ended(
        self,
        basis: Basis,
        used: UsedObjects,
        coverage: Coverage,
        *,
        counts: bool,
        may_prune: Callable[[CreatedObject], bool],
    ) -> list[tuple[CreatedObject, Omission]]:
        """Note the end of a run. `counts` is False for an incomplete one.

        Returns unused objects that stay, because the run may not have reached the tasks that use them.
        """
        held = []
        hiding: dict[Basis, list[tuple[Omission, frozenset[str]]]] = {}  # a spec can cause thousands of omissions
        for entry in self.objects.values():
            if self.is_used(entry, used):
                entry.basis, entry.unused = basis, 0
                tasks = coverage.tasks_at(used.times(entry.plural, entry.key))
                entry.tasks = tuple(sorted(tasks)) if len(tasks) <= _MOST_TASKS else ()
            elif not counts or entry.exempt or not may_prune(entry) or not basis.is_changed(entry.basis):
                entry.unused = 0
            elif omission := _omission(entry, basis, coverage, hiding):
                entry.unused = 0
                held.append((entry, omission))
            else:
                entry.unused = min(entry.unused + 1, CONFIRMED)
        return held

    def is_used(self, entry: CreatedObject, used: Uses) -> bool:
        """Return True if runs use an object, or its helm release."""
        if used.has(entry.plural, entry.key):
            return True
        if not entry.release:
            return False
        namespace, _, name = entry.release.partition("/")
        release = ObjectKey(namespace, name)
        # If the release's state is not in the cluster, no request shows whether helm still manages it.
        is_known = has_state(release, (ident.key for ident in self.objects))
        return not is_known or used.has_release(release)

    def unused(self) -> list[CreatedObject]:
        """Return the objects that can be pruned."""
        return [entry for entry in self.objects.values() if entry.unused >= CONFIRMED and entry.uid]

    def is_pending(self) -> bool:
        """Return True if another run must confirm that an object is unused."""
        return any(0 < entry.unused < CONFIRMED for entry in self.objects.values())

    def stale(self, used: Uses) -> Iterator[CreatedObject]:
        """Yield the confirmed entries that a run did not use, the oldest first."""
        for entry in self.objects.values():
            if entry.uid and not self.is_used(entry, used):
                yield entry

    def spell(self) -> str:
        """Return the record as JSON."""
        bases: dict[Basis, int] = {}
        objects = [_spell(entry, bases) for entry in self.objects.values()]
        spelled = [[basis.generation, basis.content, list(basis.omitted)] for basis in bases]
        more = {"uses": self.uses.spell(), "omitted": list(self.omitted)} if self.uses else {}
        return orjson.dumps({"bases": spelled, "objects": objects, **more}).decode()

    @classmethod
    def parse(cls, text: str) -> CreationRecord:
        """Read a record. Raises ValueError if it is invalid."""
        try:
            document = orjson.loads(text)
            bases = [Basis(str(one), str(two), tuple(map(str, more))) for one, two, more in document["bases"]]
            entries = [_parse(entry, bases) for entry in document["objects"]]
            uses = UseDigests.parse(document["uses"]) if "uses" in document else None
            omitted = tuple(map(str, document.get("omitted", ())))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"invalid record of created objects: {error!r}") from error
        return cls({entry.id: entry for entry in entries}, uses, omitted)


def _omission(
    entry: CreatedObject, basis: Basis, coverage: Coverage, hiding: dict[Basis, list[tuple[Omission, frozenset[str]]]]
) -> Omission | None:
    """Return why a run may not have reached all tasks that use an object; None if it reached them.

    A failure can affect all later tasks, because they may use its result. The first one affects the most. `hiding`
    keeps the omissions that decide, with the tasks on which they have no effect.
    """
    if entry.basis not in hiding:
        more = Counter(basis.omitted) - Counter(entry.basis.omitted)
        omissions = [omission for omission in coverage.omissions if omission.task in more]
        failures = [omission for omission in omissions if omission.failed]
        firsts = (*omissions[:1], *failures[:1])
        hiding[entry.basis] = [(omission, coverage.reached([omission.task])) for omission in firsts]
    return next((why for why, reached in hiding[entry.basis] if not (entry.tasks and reached >= {*entry.tasks})), None)


def may_prune(policy: PrunePolicy, entry: CreatedObject) -> bool:
    """Return True if a watch prunes objects of this kind."""
    kind = entry.gvk.kind
    if kind == "Secret" and not entry.gvk.group and entry.key.name.startswith(RELEASE):
        return False
    return _PROTECTED.get(kind) != entry.gvk.group or kind in policy.kinds


def reason_to_keep(obj: Object, owner: Owner) -> str:
    """Return why an object is not deleted; empty if its only owner is the resource."""
    annotations = annotations_of(obj)
    if is_deleting(obj):
        return "it is being deleted"
    if annotations.get(KEEP) == "false":
        return f"annotation {KEEP}"
    if annotations.get(_HELM_KEEP) == "keep":
        return f"annotation {_HELM_KEEP}"
    references = references_of(obj)
    named = {name: annotations[name] for name in (PRIMARY_RESOURCE, PRIMARY_RESOURCE_TYPE) if name in annotations}
    is_ours = [reference.get("uid") == owner.ref.uid for reference in references]
    if references and all(is_ours) and named in ({}, owner.annotations()):
        return ""
    if not references and named == owner.annotations():
        return ""
    return "it has another owner" if references or named else "the resource does not own it"


def _spell(entry: CreatedObject, bases: dict[Basis, int]) -> dict[str, Any]:
    fields = {
        "apiVersion": entry.gvk.api_version,
        "kind": entry.gvk.kind,
        "plural": entry.plural,
        "namespace": entry.key.namespace,
        "name": entry.key.name,
        "uid": entry.uid,
        "basis": bases.setdefault(entry.basis, len(bases)),
        "intended": entry.intended,
        "release": entry.release,
        "unused": entry.unused,
        "exempt": entry.exempt,
        "tasks": list(entry.tasks),
    }
    return {name: value for name, value in fields.items() if value or name == "basis"}


def _parse(fields: Mapping[str, Any], bases: list[Basis]) -> CreatedObject:
    return CreatedObject(
        gvk=GVK.of(fields),
        plural=str(fields["plural"]),
        key=ObjectKey(str(fields.get("namespace", "")), str(fields["name"])),
        basis=bases[int(fields["basis"])],
        uid=str(fields.get("uid", "")),
        intended=int(fields.get("intended", 0)),
        release=str(fields.get("release", "")),
        unused=int(fields.get("unused", 0)),
        exempt=fields.get("exempt") is True,
        tasks=tuple(map(str, fields.get("tasks", ()))),
    )
