"""Decision whether an object is ready, from the health of its dependents, and when a change of it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runner.core.dependents.kind import Owned
from runner.core.kube.health import HealthState, KindName
from runner.core.status import kstatus
from runner.core.status.kstatus import KstatusConditions
from runner.features.ready.feature import FAILED, NOT_READY, UNKNOWN
from runner.values.objects import ObjectKey

KINDS: Sequence[KindName] = (
    ("", "PersistentVolumeClaim"),
    ("batch", "Job"),
    ("apps", "StatefulSet"),
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
)
"""Kinds that an object waits for. A message names the first: pods wait for claims, for example."""
FOLLOWED = frozenset({kstatus.SUCCEEDED, NOT_READY, FAILED, UNKNOWN})
"""Reasons of a `Ready` that follows the dependents. All others are about the object's own run."""
_REASONS: Mapping[HealthState, str] = {HealthState.FAILED: FAILED, HealthState.IN_PROGRESS: NOT_READY}


def _rank(owned: Owned) -> tuple[HealthState, int, ObjectKey]:
    """Return the place of a dependent among several; the lowest is named."""
    return owned.health.state, KINDS.index((owned.gvk.group, owned.gvk.kind)), owned.key


class Readiness(NamedTuple):
    """State of an object's dependents."""

    state: HealthState
    message: str = ""
    """Empty if all are ready."""
    first: Owned | None = None
    """The one that the message names."""

    @property
    def text(self) -> tuple[HealthState, str]:
        """The part of it that users see."""
        return self.state, self.message

    @property
    def conditions(self) -> KstatusConditions:
        """The conditions of an object whose last run succeeded."""
        if self.state is HealthState.READY:
            return kstatus.ready("True", kstatus.SUCCEEDED, kstatus.SUCCESS_MESSAGE)
        if self.state is HealthState.UNKNOWN:
            return kstatus.working(UNKNOWN, self.message)
        return kstatus.failed(_REASONS[self.state], self.message, final=self.state is HealthState.FAILED)


READY = Readiness(HealthState.READY)


def readiness(
    unready: Sequence[Owned], namespace: str, unknown: str = "", reasons: Mapping[str, str] | None = None
) -> Readiness:
    """Return the state of an object in `namespace`.

    `unready` are its dependents that are not ready. `unknown`: why there may be more of them; empty if all are known.
    `reasons`: why pods are not ready, by the UID of the dependent.
    """
    first = min(unready, key=_rank, default=None)
    if first is None or (unknown and first.health.state is HealthState.UNKNOWN):
        return Readiness(HealthState.UNKNOWN, unknown) if unknown else READY
    name = first.key.name if first.key.namespace == namespace else str(first.key)
    reason = (reasons or {}).get(first.uid, "")
    more = f" (and {len(unready) - 1} more)" if len(unready) > 1 else ""
    parts = [f"{first.gvk.kind} {name}", first.health.message, *([reason] if reason else [])]
    return Readiness(first.health.state, ": ".join(parts) + more, first)
