"""Record of an object's last successful run, and whether its inputs have changed since. Pure.

The record is an annotation of the object, so that it is as durable as the object and every replica can read it. It
contains digests of the run's inputs: the object, the executed content, the owned objects, and other objects that the
run read. An object without a valid record runs. A failed run removes the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from runner.values.objects import LAST_RUN, Object, ObjectKey, annotations_of
from runner.values.slots import Slot

MOST_READS = 32
"""Limit of objects and lists that a run read, without owned objects."""
_MOST_PATHS = 1000
"""Limit during the run, when it is not known yet which objects are owned."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Digests of a run's inputs as it begins."""

    obj: str
    content: str
    named: str | None
    """References of the object; None if their state is not known."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """Record of a run that succeeded."""

    obj: str
    """Digest of the fields of the object that a role can depend on."""
    content: str
    """Digest of the executed content."""
    owned: str
    """Digest of the owned objects."""
    reads: Mapping[str, str]
    """Digest of each other path that the run read."""
    due: float | None
    """Time of the next run that the role requested, in seconds since the epoch."""
    named: str = ""
    """Digest of the object's references; empty if it has none."""
    seal: str = ""
    """See `seal.Seal`; empty if the run read nothing."""

    @classmethod
    def of(cls, obj: Object) -> LastRun | None:
        """Read the record of an object; None if it is missing or invalid."""
        try:
            record = orjson.loads(annotations_of(obj)[LAST_RUN])
            return cls(
                str(record["object"]),
                str(record["content"]),
                str(record["owned"]),
                {str(path): str(digest) for path, digest in record.get("reads", {}).items()},
                float(record["due"]) if "due" in record else None,
                str(record.get("named", "")),
                str(record.get("seal", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError):
            return None

    def written(self) -> str:
        """Return the annotation's value."""
        fields: dict[str, Any] = {"object": self.obj, "content": self.content, "owned": self.owned}
        if self.reads:
            fields["reads"] = dict(self.reads)
        if self.due is not None:
            fields["due"] = round(self.due)
        if self.named:
            fields["named"] = self.named
        if self.seal:
            fields["seal"] = self.seal
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()

    def outdated(self, inputs: RunInputs, now: float) -> str:
        """Return why a run is due, without requests to the cluster; empty if none is due."""
        if self.obj != inputs.obj:
            return "the object has changed"
        if self.content != inputs.content:
            return "the role, playbook or settings have changed"
        if inputs.named is None:
            return "the state of the object's references is not known"
        if self.named != inputs.named:
            return "a reference of the object has changed"
        if self.due is not None and self.due <= now:
            return "the last run requested another run by now"
        return ""


@dataclass(slots=True)
class ReadSet:
    """Objects and lists that a run read, without owned objects."""

    owned: str = ""
    """Digest of the owned objects at the end of the run; empty if not known, or if another client changed one."""
    unseen: str = ""
    """Why the reads of the run are not fully recorded."""
    reads: dict[str, ReadEntry] = field(default_factory=dict)

    def saw(self, path: str, seen: ReadEntry) -> None:
        """Record a read; the latest of a path counts."""
        if len(self.reads) < _MOST_PATHS or path in self.reads:
            self.reads[path] = seen
        else:
            self.misses("the run read too many objects")

    def ended(self, owned: str) -> None:
        """Note the digest of the owned objects at the end of the run."""
        self.owned = owned

    def misses(self, why: str) -> None:
        """Record that the run read something that cannot be compared."""
        self.unseen = self.unseen or why


READ_SET: Slot[ReadSet | None] = Slot("read set", None)
"""Read set of a run; None if it is not recorded."""


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An object or a list that a run read."""

    kind: tuple[str, str]
    """Group and plural."""
    key: ObjectKey
    """Without a name for a list."""
    digest: str
