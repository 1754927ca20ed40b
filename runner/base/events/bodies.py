"""Kubernetes Events as values, and their bodies in events.k8s.io/v1 and in the core group. Pure.

Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from runner.base.log import visible
from runner.values.objects import ObjectRef

EventType: TypeAlias = Literal["Normal", "Warning"]

REPORTER = "ansible-operator"
_LONGEST_NOTE = 1000
"""Bytes; the API refuses more than 1,024."""
_LONGEST_NAME = 200
_LONGEST_INSTANCE = 128
_CUT = "…"


@dataclass(frozen=True, slots=True)
class ApiEvent:
    """An Event to write."""

    regarding: ObjectRef
    related: ObjectRef | None
    type: EventType
    reason: str
    """In CamelCase, for programs."""
    action: str
    """What the operator did, in CamelCase."""
    note: str
    """For users."""
    alike: str = ""
    """Text that is the same for each repetition, if the note is not; empty: the note."""

    @property
    def name(self) -> tuple[str, str, str, str]:
        """Return the key by which repetitions are counted."""
        return (self.regarding.uid, self.type, self.reason, self.alike or self.note)


@dataclass(frozen=True, slots=True)
class EventCount:
    """Count of an Event and its times, in seconds since the epoch."""

    first: float
    last: float
    count: int


def name_of(what: ApiEvent, moment: int) -> str:
    """Return the name of an Event. `moment`, in nanoseconds, sorts the API's lists by time."""
    # Each part of a name between dots ends with a letter or digit.
    return f"{what.regarding.key.name[:_LONGEST_NAME].rstrip('-.')}.{moment:016x}"


def created(what: ApiEvent, metadata: dict[str, str], instance: str, seen: EventCount, *, core: bool) -> dict[str, Any]:
    """Return the body that creates an Event."""
    common = {
        "metadata": metadata,
        "kind": "Event",
        "type": what.type,
        "reason": what.reason,
        "action": what.action,
        **({"related": _reference(what.related)} if what.related is not None else {}),
    }
    note, about, by = _bounded(what.note), _reference(what.regarding), instance[:_LONGEST_INSTANCE]
    if core:
        return {
            **common,
            "apiVersion": "v1",
            "message": note,
            "involvedObject": about,
            "source": {"component": REPORTER, "host": by},
            "firstTimestamp": _seconds(seen.first),
            "lastTimestamp": _seconds(seen.last),
            "count": seen.count,
        }
    return {
        **common,
        "apiVersion": "events.k8s.io/v1",
        "note": note,
        "regarding": about,
        "reportingController": REPORTER,
        "reportingInstance": by,
        "eventTime": _microseconds(seen.first),
        **(_series(seen) if seen.count > 1 else {}),
    }


def repeated(seen: EventCount, *, core: bool) -> dict[str, Any]:
    """Return the merge patch that updates the count of an Event."""
    return {"count": seen.count, "lastTimestamp": _seconds(seen.last)} if core else _series(seen)


def _reference(ref: ObjectRef) -> dict[str, str]:
    """Return the core API's ObjectReference."""
    fields = {
        "apiVersion": ref.gvk.api_version,
        "kind": ref.gvk.kind,
        "name": ref.key.name,
        "namespace": ref.key.namespace,
        "uid": ref.uid,
    }
    return {name: value for name, value in fields.items() if value}


def _series(seen: EventCount) -> dict[str, Any]:
    return {"series": {"count": seen.count, "lastObservedTime": _microseconds(seen.last)}}


def _bounded(note: str) -> str:
    data = visible(note).encode(errors="replace")
    if len(data) <= _LONGEST_NOTE:
        return data.decode()
    return data[: _LONGEST_NOTE - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _seconds(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _microseconds(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
