"""Which runs a change of an object starts, and why. Pure.

Contract: creation; a change of `metadata.generation`; any change of a kind that has no generation; deletion where our
finalizer stands on the object; a change of annotations where the watch asks for it. Changes of labels or status alone
start none, but for the annotations that pause an object or ask for a run. Each object of the first list runs once.
"""

from __future__ import annotations

from runner.kube.cache import Change, Summary
from runner.watches.watch import Watch
from runner.workqueue.queue import Reason


def decide(watch: Watch, change: Change, *, terminal: bool) -> Reason | None:
    """Say why `change` starts a run, or None when it starts none.

    `terminal`: the object's last attempt ended for good "until it changes"; then a changed annotation counts too,
    since an annotation may be what was wrong.
    """
    old, new = change.old, change.new
    if new is None:
        return Reason.GONE
    if new.deleting:
        return _deletion(watch, old, new)
    if old is None or old.uid != new.uid:
        return Reason.PRESENT if change.initial else Reason.CREATED
    if _content_changed(old, new) or old.paused != new.paused:
        return Reason.CHANGED
    if _is_asked_for(old, new):
        return Reason.ASKED
    counts = terminal or watch.watch_annotations_changes
    return Reason.CHANGED if counts and old.annotations_digest != new.annotations_digest else None


def _deletion(watch: Watch, old: Summary | None, new: Summary) -> Reason | None:
    """An object that is being deleted concerns us only while our finalizer stands on it."""
    if watch.finalizer is None or watch.finalizer.name not in new.finalizers:
        return None
    if old is None or old.uid != new.uid or not old.deleting:
        return Reason.DELETED
    news = old.paused != new.paused or _content_changed(old, new) or _is_asked_for(old, new)
    return Reason.DELETED if news else None


def _is_asked_for(old: Summary, new: Summary) -> bool:
    """Whether somebody has written down that a run is wanted; to take that off asks for none."""
    return new.run_requested not in {"", old.run_requested}


def _content_changed(old: Summary, new: Summary) -> bool:
    """Compare generations, or the whole content for kinds that have none (Secret, ConfigMap, Namespace)."""
    if new.generation is not None:
        return old.generation != new.generation
    return old.content_digest != new.content_digest
