"""What is kept of an object's last run, and whether another one would be of any use. Pure.

The record stands in an annotation of the object itself, so that it is as durable as the object, goes with it, and is
there for any replica. It holds digests of what went into a run that succeeded: the object, what was executed, what
the object owned when the run ended, and what else the run had seen of the cluster. An object without a record, or with
one that cannot be read, is run: the record of a failed run is taken off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from runner.objects import LAST_RUN, Object, annotations_of, metadata, uid_of

MOST_READS = 32
"""Objects and lists that a run may have looked at, beside what its object owns."""

_DIGEST_SIZE = 12
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run that succeeded."""

    obj: str
    """Digest of the object, as far as a role can depend on it."""
    content: str
    """Digest of what was executed."""
    owned: str
    """Digest of what the object owned."""
    reads: Mapping[str, str]
    """What else was looked at: a digest for each path."""
    due: float | None
    """When the role wants to be run again, in seconds since the epoch."""
    named: str = ""
    """Digest of what the object names without owning it; empty where it names nothing."""

    @classmethod
    def of(cls, obj: Object) -> LastRun | None:
        """Read the record that an object carries; None where there is none that makes sense."""
        try:
            found = orjson.loads(annotations_of(obj)[LAST_RUN])
            return cls(
                str(found["object"]),
                str(found["content"]),
                str(found["owned"]),
                {str(path): str(digest) for path, digest in found.get("reads", {}).items()},
                float(found["due"]) if "due" in found else None,
                str(found.get("named", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            return None

    def written(self) -> str:
        """As it stands in the annotation."""
        fields: dict[str, Any] = {"object": self.obj, "content": self.content, "owned": self.owned}
        if self.reads:
            fields["reads"] = dict(self.reads)
        if self.due is not None:
            fields["due"] = round(self.due)
        if self.named:
            fields["named"] = self.named
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    def outdated(self, obj: str, content: str, named: str | None, now: float) -> str:
        """Say why a run is due, as far as that can be known without a look at the cluster; empty when it is not."""
        if self.obj != obj:
            return "the object differs from that of the last run"
        if self.content != content:
            return "what is run differs from what the last run was made of"
        if named is None:
            return "it is not known how the object's references are"
        if self.named != named:
            return "something that the object refers to has changed"
        if self.due is not None and self.due <= now:
            return "the time has come that the last run asked for"
        return ""


@dataclass(slots=True)
class ReadSet:
    """What a run sees of the cluster, but for what its object owns."""

    owned: str = ""
    """Digest of what the object owns as the run ends; empty: somebody interfered, or it is not known."""
    unseen: str = ""
    """Why it is not known what the run saw."""
    reads: dict[str, ReadEntry] = field(default_factory=dict)

    def saw(self, path: str, seen: ReadEntry) -> None:
        """Note what stood under a path; the latest counts."""
        self.reads[path] = seen

    def misses(self, why: str) -> None:
        """Note that the run saw something that cannot be compared."""
        self.unseen = self.unseen or why


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An object or a list that a run saw."""

    group: str
    plural: str
    namespace: str
    name: str
    """Empty for a list."""
    digest: str


def digest_of(obj: Object) -> str:
    """Digest an object as far as a role can depend on it."""
    meta = metadata(obj)
    ours = {LAST_RUN, _LAST_APPLIED}
    annotations = {name: value for name, value in annotations_of(obj).items() if name not in ours}
    told = {name: value for name, value in obj.items() if name not in {"metadata", "status"}}
    return digest([told, uid_of(obj), meta.get("name"), meta.get("namespace"), meta.get("labels") or {}, annotations])


def digest_of_answer(obj: Object | None) -> str:
    """Digest what a read was answered with, an object or a list; None stands for what is not there."""
    if obj is None:
        return _ABSENT
    if isinstance(items := obj.get("items"), list):
        return digest([_lasting(item) for item in items if isinstance(item, dict)])
    return digest(_lasting(obj))


def digest(value: object) -> str:
    """Digest a JSON value."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()


def _lasting(obj: Object) -> Object:
    """All but what says nothing of the object, and what a list leaves out of its items."""
    kept = {name: value for name, value in metadata(obj).items() if name not in {"managedFields", "resourceVersion"}}
    return {**{name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}, "metadata": kept}
