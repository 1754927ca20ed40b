"""Digest of an object's status: the part that means something to an owner, and whether a rollout is in progress. Pure.

Times, messages, probes, usage and counters such as `observedGeneration` mean nothing. All other fields count: phases,
conditions, numbers of ready replicas, addresses, names of volumes, and fields without a known meaning. It also
counts if the controller observes the latest spec.

A rollout is in progress by the rules of kstatus for workloads, pods and claims. An object of another kind is in
progress until its controller has observed the latest spec.
Source: https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.watches.policy import StatusTrigger
from runner.values.digests import short_digest
from runner.values.objects import GVK, mapping, maps, metadata

_DEPTH = 16
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_NOISE = re.compile(
    r"(?i:probe|heartbeat|metrics|utilization|^(messages?|used|usage|attempts|retries|restarts)$"
    r"|(collision|reconcile|restart|retry)_?counts?$|^terminating(replicas)?$|^uncountedTerminatedPods$)"
    r"|(Time|Timestamp|Generation|ResourceVersion)$|(^|_)(time|timestamp|generation|resource_version)$"
)
"""Names of fields without meaning."""
_COUNTS = {
    ("apps", "Deployment"): ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
    ("apps", "ReplicaSet"): ("replicas", "readyReplicas", "availableReplicas"),
    ("apps", "StatefulSet"): ("replicas", "readyReplicas"),
    ("", "ReplicationController"): ("replicas", "readyReplicas", "availableReplicas"),
}
"""Numbers that are equal to `spec.replicas` after a rollout."""
_SCHEDULED = ("currentNumberScheduled", "numberReady", "numberAvailable")
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
    rolled_out: int | None = None
    """Generation of the last rollout that was complete, as far as it is known."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], gvk: GVK | None = None, *, uses_generation: bool) -> ObjectStatus:
        """Digest the status of an object. `gvk` is needed for items of a list, which do not contain it.

        `uses_generation` is True if the generation follows the spec. Otherwise each write of the status raises it.
        """
        status, generation = mapping(obj.get("status")), metadata(obj).get("generation")
        observed = status.get("observedGeneration")
        is_behind = uses_generation and isinstance(observed, int) and observed != generation
        return cls(
            every=short_digest(obj.get("status")),
            meaning=short_digest([is_behind, meaningful(obj.get("status"))]),
            is_rolling=is_behind or _is_rolling(gvk or GVK.of(obj), mapping(obj.get("spec")), status),
            ready=max(_number(status.get(name)) for name in _READY),
            generation=_number(generation),
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


def _is_rolling(gvk: GVK, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    kind = (gvk.group, gvk.kind)
    if kind in _COUNTS:
        desired = spec.get("replicas", 1)
        if _has_condition(status, "Progressing", "False"):
            return False  # the rollout failed
        return _is_updating(kind, spec, status) or any(status.get(name, 0) != desired for name in _COUNTS[kind])
    if kind == ("apps", "DaemonSet"):
        desired, counts = _number(status.get("desiredNumberScheduled")), [*_SCHEDULED]
        if mapping(spec.get("updateStrategy")).get("type") != "OnDelete":
            counts.append("updatedNumberScheduled")
        return "desiredNumberScheduled" not in status or any(_number(status.get(name)) < desired for name in counts)
    if kind == ("batch", "Job"):
        return not any(_has_condition(status, name, "True") for name in ("Complete", "Failed", "Suspended"))
    if kind == ("", "Pod"):
        is_ready = _has_condition(status, "Ready", "True")
        return status.get("phase", "Pending") == "Pending" or (status.get("phase") == "Running" and not is_ready)
    return kind == ("", "PersistentVolumeClaim") and status.get("phase", "Pending") == "Pending"


def _is_updating(kind: tuple[str, str], spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return True while replicas of a StatefulSet are not updated that its strategy updates."""
    strategy = mapping(spec.get("updateStrategy"))
    if kind != ("apps", "StatefulSet") or strategy.get("type") == "OnDelete":
        return False
    partition = _number(mapping(strategy.get("rollingUpdate")).get("partition"))
    return _number(status.get("updatedReplicas")) < _number(spec.get("replicas", 1)) - partition


def _has_condition(status: Mapping[str, Any], kind: str, value: str) -> bool:
    return any(
        (condition.get("type"), condition.get("status")) == (kind, value)
        for condition in maps(status.get("conditions"))
    )


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
