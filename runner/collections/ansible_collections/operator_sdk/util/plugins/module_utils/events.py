"""Events about an object, in both of the API's shapes. Pure: no I/O, and the time is given.

`v1` and `events.k8s.io/v1` are two views of the same stored objects; the permissions decide which one can be written.
An `Occurrence` is one occurrence of an event. `core_*` functions record it in `v1`, `grouped_*` in `events.k8s.io/v1`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

CORE = "v1"
GROUPED = "events.k8s.io/v1"

DEFAULT_COMPONENT = "ansible-operator"

_NAME_LIMIT = 253
"""Characters in an object's name."""


@dataclass(frozen=True)
class Occurrence:
    """Something that happened to an object. `involved` is the core API's ObjectReference."""

    name: str
    namespace: str
    type: str
    reason: str
    message: str
    component: str
    reporting_component: str
    involved: dict[str, Any]
    time: datetime

    @property
    def seconds(self) -> str:
        """The time, as metav1.Time is written."""
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def micros(self) -> str:
        """The time, as metav1.MicroTime is written."""
        return self.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def derived_name(involved: dict[str, Any], kind: str, reason: str) -> str:
    """Name the Event of this type and reason about this object: the same each time, so that it is counted up."""
    told_apart = "/".join((str(involved.get("uid", "")), str(involved.get("kind", "")), kind, reason))
    return _named(str(involved.get("name", "")), hashlib.sha256(told_apart.encode()).hexdigest()[:16])


def timestamped_name(name: str, time: datetime) -> str:
    """Make a name that no earlier Event has, as client-go does: the time in hexadecimal behind it."""
    return _named(name, f"{int(time.timestamp() * 1_000_000):x}")


def core_event(occurrence: Occurrence, previous: dict[str, Any] | None) -> dict[str, Any]:
    """Return the `v1` Event to write: new, or the previous one counted up when its reason is the same."""
    again = previous is not None and previous.get("reason") == occurrence.reason
    old = previous or {}
    return {
        "apiVersion": CORE,
        "kind": "Event",
        "metadata": {"name": occurrence.name, "namespace": occurrence.namespace},
        "type": occurrence.type,
        "reason": occurrence.reason,
        "message": occurrence.message,
        "source": {"component": occurrence.component},
        "reportingComponent": occurrence.reporting_component,
        "involvedObject": occurrence.involved,
        "count": (old.get("count") or 1) + 1 if again else 1,
        "firstTimestamp": (old.get("firstTimestamp") if again else None) or occurrence.seconds,
        "lastTimestamp": occurrence.seconds,
    }


def grouped_event(occurrence: Occurrence, instance: str) -> dict[str, Any]:
    """Return a new `events.k8s.io/v1` Event; `instance` identifies the reporting process."""
    return {
        "apiVersion": GROUPED,
        "kind": "Event",
        "metadata": {"name": occurrence.name, "namespace": occurrence.namespace},
        "type": occurrence.type,
        "reason": occurrence.reason,
        "note": occurrence.message,
        "action": occurrence.reason,
        "reportingController": occurrence.reporting_component,
        "reportingInstance": instance,
        "regarding": occurrence.involved,
        "eventTime": occurrence.micros,
    }


def grouped_again(occurrence: Occurrence, previous: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that counts an `events.k8s.io/v1` Event up: all but its series is immutable there."""
    series = previous.get("series") or {}
    return {"series": {"count": (series.get("count") or 1) + 1, "lastObservedTime": occurrence.micros}}


def same_grouped(occurrence: Occurrence, previous: dict[str, Any]) -> bool:
    """Return True if the previous Event can be counted up; otherwise a new one must be created."""
    return (
        previous.get("reason") == occurrence.reason
        and previous.get("note") == occurrence.message
        and previous.get("type") == occurrence.type
        and bool(previous.get("eventTime"))
    )


def _named(name: str, suffix: str) -> str:
    return f"{name[: _NAME_LIMIT - len(suffix) - 1].rstrip('.-') or 'event'}.{suffix}"
