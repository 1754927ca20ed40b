"""What an object's deletion mark and finalizers ask for. Pure.

A finalizer's name is put on a new object before its first run. On deletion the finalizer's content runs; success
removes the name. Without our name on it, an object that is being deleted is left alone.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.objects import JSONPatch, Object, finalizers_of, is_deleting, uid_of
from runner.watches.watch import Content, Watch


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and what to do with the finalizer before and after it."""

    content: Content
    vars: Mapping[str, Any]
    """Finalizer vars; empty in an ordinary run."""
    add_first: JSONPatch | None
    """Patch that puts our finalizer on the object, to be made before the run."""
    finalizing: bool
    """Whether the run's success removes our finalizer."""


def plan(watch: Watch, obj: Object) -> Plan | None:
    """Say what `obj` asks for; None when nothing is to be run."""
    finalizer = watch.finalizer
    if not is_deleting(obj):
        missing = finalizer is not None and finalizer.name not in finalizers_of(obj)
        add = _replacing(obj, [*finalizers_of(obj), finalizer.name]) if finalizer and missing else None
        return Plan(watch.content, {}, add_first=add, finalizing=False)
    if finalizer is None or finalizer.name not in finalizers_of(obj):
        return None
    return Plan(finalizer.content, finalizer.vars, add_first=None, finalizing=True)


def removal(name: str, obj: Object) -> JSONPatch | None:
    """Build the patch that takes `name` off `obj`; None when it does not stand there."""
    names = finalizers_of(obj)
    return _replacing(obj, [other for other in names if other != name]) if name in names else None


def _replacing(obj: Object, wanted: list[str]) -> JSONPatch:
    """Replace the list only if it, and the object, are still those we saw: others write finalizers too."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid_of(obj)},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers_of(obj) or None},
        {"op": "add", "path": "/metadata/finalizers", "value": wanted},
    ]
