"""Objects of a watch with `rollout`, as the decisions read them, and their condition `Updated`. Pure.

The condition contains the digest of the content that the last run executed, and since when. A run is done if it
succeeded and its role requested no other run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runner.base.log import visible
from runner.core.status import kstatus
from runner.core.status.conditions import Condition, find, make, timestamp
from runner.core.status.report import OwnStatus
from runner.core.watches.policy import RunMode, mode_of, strictest
from runner.values.objects import (
    Object,
    ObjectKey,
    annotations_of,
    conditions_of,
    is_deleting,
    is_paused,
    key_of,
    labels_of,
    metadata,
    mode_requested,
    uid_of,
)

ROLLOUT = "ansible.sdk.operatorframework.io/rollout"
"""Annotation: `hold` keeps an object out of rollouts, `now` lets it run next."""
UPDATED = "Updated"
"""A condition of the objects of a watch with `rollout`."""
OWN = OwnStatus(conditions=frozenset({UPDATED}))
FAILED, IN_PROGRESS, WAITING, PAUSED = "Failed", "InProgress", "Waiting", "RolloutPaused"
"""Reasons of the condition `Updated` while it is false."""
UNUSABLE = "it cannot run until it is corrected"
_CONTENT = re.compile(
    r"content (?P<content>[0-9a-f]{24})\b(?: since (?P<since>[0-9TZ:-]+))?(?P<failed>, which failed)?"
)
_LONGEST = 300
"""Characters of a cause."""
_UID = 13
"""Characters of a UID in the state, which are random."""


@dataclass(frozen=True, slots=True)
class Member:
    """An object of a watch with `rollout`."""

    key: ObjectKey
    uid: str
    """The first characters."""
    content: str
    """Content of its last run; empty if it is not known."""
    failed: bool
    """Whether that run failed."""
    unready: bool
    ready_since: float
    """Seconds since the epoch, not before that run; infinite if it is not Ready, or the run was not the last one."""
    out: str
    """Why no rollout runs it; empty if one does."""
    is_next: bool
    """Whether its annotation lets it run next."""
    is_first: bool
    """Whether it has the labels of the first step."""
    is_new: bool
    """Whether no run has ended yet."""
    is_changed: bool | None
    """Whether a user changed it since its last run; None if the status does not contain this."""
    unfinished: bool = False
    """Whether the role requested another run, because the object is not in its desired state yet."""
    waits: bool = False
    """Whether its condition reports that it waits for a rollout."""

    @classmethod
    def of(cls, obj: Object, labels: Mapping[str, str], mode: RunMode) -> Member:
        """Read an object. `mode` is that of the watch."""
        conditions, meta = conditions_of(obj), metadata(obj)
        updated, failure = find(conditions, UPDATED) or {}, find(conditions, "Failure") or {}
        successful = find(conditions, "Successful") or {}
        ready = find(conditions, kstatus.READY) or successful
        content = _CONTENT.search(str(updated.get("message")))
        reason = str(updated.get("reason")) if updated.get("status") == "False" else ""
        annotation, own = annotations_of(obj).get(ROLLOUT), labels_of(obj)
        observed, generation = failure.get("observedGeneration"), meta.get("generation")
        is_ready = ready.get("status") == "True" and reason != IN_PROGRESS
        return cls(
            key=key_of(obj),
            uid=uid_of(obj)[:_UID],
            content=content["content"] if content else "",
            failed=reason == FAILED or bool(content and content["failed"]),
            unready=ready.get("status") == "False",
            ready_since=max(_moment(ready), _moment(updated), _since(content)) if is_ready else math.inf,
            out=_out(obj, failure, mode),
            is_next=annotation == "now",
            is_first=bool(labels) and labels.items() <= own.items(),
            is_new=not failure and not successful,
            is_changed=observed < generation if isinstance(observed, int) and isinstance(generation, int) else None,
            unfinished=reason == IN_PROGRESS,
            waits=reason in {WAITING, PAUSED},
        )


def cause_of(obj: Object) -> str:
    """Return why an object failed or is not Ready: the first line of its condition; empty if there is none."""
    for kind, status in (("Failure", "True"), (kstatus.READY, "False"), ("Successful", "False")):
        condition = find(conditions_of(obj), kind) or {}
        if condition.get("status") == status and (message := str(condition.get("message") or "").strip()):
            return visible(message.splitlines()[0])[:_LONGEST]
    return ""


def _out(obj: Object, failure: Condition, mode: RunMode) -> str:
    """Return why no rollout runs an object; empty if one does."""
    effective_mode = strictest(mode_of(mode_requested(obj)) or mode, mode)
    working = find(conditions_of(obj), kstatus.RECONCILING) or {}
    is_retried = working.get("status") == "True" and working.get("reason") in {kstatus.NOT_RUNNABLE, kstatus.STARTED}
    reasons = {
        "it is being deleted": is_deleting(obj),
        f"the annotation {ROLLOUT} holds it": annotations_of(obj).get(ROLLOUT) == "hold",
        "it is paused": is_paused(obj),
        "its mode is plan": effective_mode == "plan",
        UNUSABLE: (failure.get("status"), failure.get("reason")) == ("True", "Unusable") and not is_retried,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _moment(condition: Condition) -> float:
    return _seconds(condition.get("lastTransitionTime"))


def _since(content: re.Match[str] | None) -> float:
    return _seconds(content["since"]) if content else 0.0


def _seconds(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def updated(obj: Object, content: str, now: float) -> Condition:
    """Return the condition after a run that is done. `obj` is the object before it.

    The time, `now`, is that of the first such run: with each later one, the condition stays as it is.
    """
    before = find(conditions_of(obj), UPDATED) or {}
    match = _CONTENT.search(str(before.get("message")))
    if before.get("status") == "True" and match and match["content"] == content and match["since"]:
        return make(UPDATED, "True", UPDATED, str(before["message"]))
    return make(UPDATED, "True", UPDATED, f"Last run: content {content} since {timestamp(now)}")


def not_updated(reason: str, content: str) -> Condition:
    """Return the condition after a run with `content` that failed, or that is not done."""
    what = "The run failed" if reason == FAILED else "The role requested another run"
    return make(UPDATED, "False", reason, f"{what}; last run: content {content}")


@dataclass(frozen=True, slots=True)
class Wait:
    """Why an outdated object does not run yet."""

    reason: str
    message: str

    def condition(self, content: str, *, failed: bool = False) -> Condition:
        """Return the condition of an object whose last run executed `content`, and failed or not."""
        last = f"content {content or 'unknown'}" + (", which failed" if failed and content else "")
        return make(UPDATED, "False", self.reason, f"{self.message}; last run: {last}")
