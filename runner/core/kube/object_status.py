"""Digest of an object's status: the part that means something to an owner, and whether a rollout is in progress. Pure.

Times, messages, probes, usage and counters such as `observedGeneration` mean nothing. All other fields count: phases,
conditions, numbers of ready replicas, addresses, names of volumes, and fields without a known meaning. It also
counts if the controller observes the latest spec.

`health` decides whether a rollout is in progress.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.kube import health
from runner.core.kube.health import Health, HealthState
from runner.core.watches.policy import StatusTrigger
from runner.values.digests import short_digest
from runner.values.objects import GVK, mapping, metadata

_DEPTH = 16
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NOISE = re.compile(
    r"(?i:probe|heartbeat|metrics|utilization|^(messages?|used|usage|attempts|retries|restarts)$"
    r"|(collision|reconcile|restart|retry)_?counts?$|^terminating(replicas)?$|^uncountedTerminatedPods$)"
    r"|(Time|Timestamp|Generation|ResourceVersion)$|(^|_)(time|timestamp|generation|resource_version)$"
)
"""Names of fields without meaning."""
_READY = ("readyReplicas", "numberReady")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """Digested status of an object."""

    every: bytes
    """Digest of the whole status."""
    meaning: bytes
    """Digest of the part that means something."""
    is_rolling: bool
    """True while a rollout is in progress."""
    ready: int
    """Number of ready replicas."""
    generation: int
    health: Health = health.UNREAD
    rolled_out: int | None = None
    """Generation of the last rollout that was complete, as far as it is known."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], gvk: GVK | None = None, *, uses_generation: bool) -> ObjectStatus:
        """Digest the status of an object. `gvk` is needed for items of a list, which do not contain it.

        `uses_generation` is True if the generation follows the spec. Otherwise each write of the status raises it.
        """
        status, now = mapping(obj.get("status")), health.health(obj, gvk, uses_generation=uses_generation)
        return cls(
            every=short_digest(obj.get("status")),
            meaning=short_digest([uses_generation and health.is_behind(obj), meaningful(obj.get("status"))]),
            is_rolling=now.state is HealthState.IN_PROGRESS or (now.state is HealthState.UNKNOWN and not status),
            ready=max(health.number(status.get(name)) for name in _READY),
            generation=health.number(metadata(obj).get("generation")),
            health=now,
        )

    def after(self, old: ObjectStatus | None) -> ObjectStatus:
        """Return this status as the successor of another one."""
        before = old.rolled_out if old is not None else None
        return replace(self, rolled_out=before if self.is_rolling else self.generation)

    def is_progress(self, old: ObjectStatus | None) -> bool:
        """Return True for a step of a rollout. A complete rollout and the loss of a replica are none."""
        if not self.is_rolling:
            return False
        had_all = old is not None and self.rolled_out == self.generation
        return not had_all or (old is not None and old.is_rolling and self.ready >= old.ready)

    def part(self, trigger: StatusTrigger) -> bytes:
        """Return the digest of the part that counts."""
        return {"off": b"", "auto": self.meaning, "all": self.every}[trigger]


UNREAD = ObjectStatus(b"?", b"?", is_rolling=False, ready=0, generation=0)
"""Status of an object that changed before it was read for the first time. It differs from each status that is read."""


def unread(old: ObjectStatus | None, *, is_same: bool) -> ObjectStatus | None:
    """Return the status of an object whose metadata was read, after `old`. `is_same`: the version has not changed."""
    return UNREAD if old is None and not is_same else old


def meaningful(status: Any, depth: int = _DEPTH) -> Any:
    """Return the part of a status that means something to an owner, or None. Conditions are sorted by type."""
    if depth and isinstance(status, Mapping):
        parts = {name: meaningful(value, depth - 1) for name, value in status.items() if not _is_noise(name, value)}
        return {name: part for name, part in parts.items() if part is not None} or None
    if depth and isinstance(status, list):
        items = [meaningful(item, depth - 1) for item in status]
        typed = all(isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in items)
        return sorted(items, key=lambda item: str(item["type"])) if items and typed else items or None
    return status


def _is_noise(name: str, value: Any) -> bool:
    return bool(_NOISE.search(name) or (isinstance(value, str) and _TIME.match(value)))
