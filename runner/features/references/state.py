"""References in a spec, their index, and the states of referenced objects. Pure.

A state contains the version, the digested status, and a digest of the content without metadata and status. The latter
has a random key for each process. So a guessed Secret value cannot be verified from a memory dump or a log. Versions
are compared for equality only.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import orjson

from runner.core.kube.object_state import UNREAD, ObjectStatus, succeeding
from runner.core.watches.policy import StatusTrigger
from runner.features.references.fields import WatchReference
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, key_of, labels_of, metadata, uid_of

_KEY = secrets.token_bytes(32)
_DIGEST_SIZE = 16
GONE = "is gone"
"""Change of an object that was deleted or is not selected any more."""
MOST_REFERENCES = 100
"""Maximum number of names in the spec of one object that are watched."""
_MOST_READ = 1000
"""Names of a reference that are read: an object can have hundreds of thousands, and each change of it counts."""
_NAME = re.compile(r"(?!\.{1,2}$)[^/%]{1,253}")
"""Names that the API server accepts in a path. It refuses a read of another one."""
_LENDS = "/lend-to-"
_NO_CONTENT = {"apiVersion", "kind", "metadata", "status"}


@dataclass(frozen=True, slots=True)
class ReferencedState:
    """A state of a referenced object."""

    uid: str
    version: str
    """The resourceVersion."""
    generation: int | None
    """Generation, if it follows the content; otherwise None."""
    content: bytes | None
    """Digest of the content; None if it was not read."""
    status: ObjectStatus | None
    """The last status that was read; None if there was none."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], gvk: GVK, *, whole: bool, uses_generation: bool) -> ReferencedState:
        """Digest an object; `whole` is False for metadata only."""
        meta = metadata(obj)
        return cls(
            uid=uid_of(obj),
            version=str(meta.get("resourceVersion") or ""),
            generation=meta.get("generation") if uses_generation else None,
            content=_sealed(obj) if whole else None,
            status=ObjectStatus.of(obj, gvk, uses_generation=uses_generation) if whole else None,
        )

    def following(self, old: ReferencedState | None) -> ReferencedState:
        """Return this state as the successor of another one, whose content and status it has until they are read."""
        if old is None or old.uid != self.uid:
            return replace(self, status=succeeding(self.status, None, is_same=True))
        status = succeeding(self.status, old.status, is_same=old.version == self.version)
        if self.status is not None:
            return replace(self, status=status)
        return replace(self, content=None if difference(old, self) else old.content, status=status)

    def lasting(self, trigger: StatusTrigger) -> str | None:
        """Return an identifier of this state that survives restarts and reveals no content; None if it is unknown."""
        if self.generation is None:
            return f"{self.uid}:{self.version}"
        if trigger == "off":
            return f"{self.uid}:g{self.generation}"
        if self.status is None or self.status is UNREAD:
            return None
        return f"{self.uid}:g{self.generation}:{self.status.part(trigger).hex()}"


@dataclass(frozen=True, slots=True)
class ReferenceChange:
    """Change of a referenced object."""

    what: str
    """The change, without that of the status; empty if there is none."""
    last: ReferencedState
    """The current state, or the last one of an object that is gone."""
    before: ReferencedState | None

    @classmethod
    def of(cls, old: ReferencedState | None, new: ReferencedState | None) -> ReferenceChange | None:
        """Compare two states (None: no object); None if nothing changed that can be relevant."""
        last, what = new or old, difference(old, new)
        if last is None:
            return None
        change = cls(what, last, old)
        return change if what or change.has_status("all") else None

    def has_status(self, trigger: StatusTrigger) -> bool:
        """Return True if the status changed in a way that counts."""
        old, new = self.before, self.last
        if trigger == "off" or old is None or new.status is None or new.status is UNREAD or old.uid != new.uid:
            return False
        if old.status is None:
            return old.version != new.version
        return old.status.part(trigger) != new.status.part(trigger)

    def is_progress(self, trigger: StatusTrigger) -> bool:
        """Return True for a step of a rollout that is not complete."""
        old, new = self.before, self.last
        if trigger != "auto" or old is None or new.status is None:
            return False
        return new.status.is_progress(old.status)


def difference(old: ReferencedState | None, new: ReferencedState | None) -> str:
    """Return the change between two states (None: no object); empty if it is not relevant."""
    if old is None or new is None:
        return "appeared" if new is not None else GONE if old is not None else ""
    if old.uid != new.uid:
        return "was recreated"
    if old.version == new.version:
        return ""
    if old.content is not None and new.content is not None:
        return "changed" if old.content != new.content else ""
    if old.generation is not None and new.generation is not None:
        return "changed" if old.generation != new.generation else ""
    return "may have changed"


def has_to_be_read(old: ReferencedState | None, new: ReferencedState) -> bool:
    """Return True if metadata alone does not show whether the content changed."""
    if new.content is not None or old is None or old.uid != new.uid or old.version == new.version:
        return False
    return old.content is not None and (old.generation is None or new.generation is None)


@dataclass(frozen=True, slots=True)
class SpecReferences:
    """References of an object, and those that are not watched."""

    watched: frozenset[ObjectRef]
    foreign: tuple[ObjectRef, ...]
    """References to namespaces that the watch does not allow, in the order of the spec."""
    excess: tuple[ObjectRef, ...]
    """References beyond the maximum number."""
    invalid: tuple[str, ...]
    """Errors of invalid references."""


def references_of(references: Iterable[WatchReference], obj: Object) -> SpecReferences:
    """Return the references of an object. Names in watches.yaml do not count towards the maximum."""
    own = key_of(obj).namespace
    fixed: set[ObjectRef] = set()
    named: dict[ObjectRef, None] = {}
    foreign: dict[ObjectRef, None] = {}
    invalid: list[str] = []
    for reference in references:
        try:
            referenced = [ObjectRef(reference.gvk, key) for key in islice(names(reference, obj), _MOST_READ)]
        except ValueError as error:
            invalid.append(str(error))
            continue
        if reference.name:
            fixed.update(referenced)
            continue
        for ref in referenced:
            (named if reference.allows(ref.key.namespace, own) else foreign)[ref] = None
    kept, excess = tuple(named)[:MOST_REFERENCES], tuple(named)[MOST_REFERENCES:]
    return SpecReferences(frozenset(fixed.union(kept)), tuple(foreign), excess, tuple(invalid))


def names(reference: WatchReference, obj: Object) -> Iterator[ObjectKey]:
    """Yield the references of an object, by path or by the watch's own name. Raises ValueError for an invalid one."""
    own = reference.namespace or key_of(obj).namespace
    if reference.name:
        yield ObjectKey(own, reference.name)
    elif reference.path is not None:
        for value in reference.path.find(obj.get("spec")):
            yield from _named(value, own, reference.path.text)


def _named(value: object, own: str, path: str) -> Iterator[ObjectKey]:
    if isinstance(value, list):
        for item in value:
            yield from _named(item, own, path)
        return
    name, namespace = (value.get("name"), value.get("namespace")) if isinstance(value, dict) else (value, None)
    if name is None or name == "":
        return
    if not (
        isinstance(name, str)
        and isinstance(namespace, str | None)
        and all(map(_NAME.fullmatch, filter(None, (name, namespace))))
    ):
        raise ValueError(f"{path} is not a reference; set a name, {{name, namespace}}, or a list of them")
    yield ObjectKey(namespace or own, name)


def _sealed(obj: Mapping[str, Any]) -> bytes:
    """Digest the content, and the labels by which the owner of a Secret lends it."""
    content: dict[str, Any] = {name: value for name, value in obj.items() if name not in _NO_CONTENT}
    content["lent"] = {name: value for name, value in labels_of(obj).items() if _LENDS in name}
    text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=_DIGEST_SIZE, key=_KEY).digest()


_NO_TARGETS: frozenset[ObjectRef] = frozenset()


class ReferenceIndex:
    """References in both directions."""

    def __init__(self) -> None:
        self._references: dict[ObjectRef, frozenset[ObjectRef]] = {}
        self._targets: dict[ObjectRef, set[ObjectRef]] = {}
        self._spaces: dict[tuple[GVK, str], set[ObjectKey]] = {}

    def update(self, target: ObjectRef, references: frozenset[ObjectRef]) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Set the references of an object. Return those that are new and those that no object has any more."""
        before = self._references.get(target, frozenset())
        self._references[target] = references
        self._spaces.setdefault((target.gvk, target.key.namespace), set()).add(target.key)
        fresh = [reference for reference in references - before if self._add(reference, target)]
        return fresh, self._leave(before - references, target)

    def forget(self, target: ObjectRef) -> list[ObjectRef]:
        """Remove an object. Return the references that no object has any more."""
        space = (target.gvk, target.key.namespace)
        there = self._spaces.get(space, set())
        there.discard(target.key)
        if not there:
            self._spaces.pop(space, None)
        return self._leave(self._references.pop(target, frozenset()), target)

    def references(self, target: ObjectRef) -> frozenset[ObjectRef]:
        """Return the references of an object."""
        return self._references.get(target, frozenset())

    def targets(self, references: ObjectRef) -> frozenset[ObjectRef]:
        """Return the objects that have a reference."""
        return frozenset(self._targets.get(references, _NO_TARGETS))

    def objects(self, watch: GVK, namespace: str) -> Iterator[ObjectRef]:
        """Yield the objects of a watch in a namespace and the cluster-scoped ones; empty: all."""
        spaces = {namespace, ""} if namespace else [space for gvk, space in self._spaces if gvk == watch]
        return (ObjectRef(watch, key) for space in spaces for key in self._spaces.get((watch, space), ()))

    def _add(self, references: ObjectRef, target: ObjectRef) -> bool:
        targets = self._targets.setdefault(references, set())
        targets.add(target)
        return len(targets) == 1

    def _leave(self, left: Iterable[ObjectRef], target: ObjectRef) -> list[ObjectRef]:
        unnamed = []
        for references in left:
            targets = self._targets[references]
            targets.discard(target)
            if not targets:
                del self._targets[references]
                unnamed.append(references)
        return unnamed
