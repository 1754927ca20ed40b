"""An attempt to run an object, for tests of one feature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.core.kube.discovery import ApiResource
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest, RunReason
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.decisions import RunContent
from runner.core.watches.watch import Role
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import GVK, Object, key_of

THINGS = GVK("test.example.com", "v1", "Thing")
RESOURCE = ApiResource(THINGS, "things", namespaced=True, verbs=frozenset(), subresources=frozenset())


def attempt_value(
    obj: Object, reason: RunReason = reasons.CHANGED, *, finalizing: bool = False, **different: Any
) -> Attempt:
    """Make an attempt of a thing with a valid lease, but for what is given."""
    fields: dict[str, Any] = {
        "request": ReconcileRequest(key_of(obj), reason, (), 0, 0, 0.0),
        "obj": obj,
        "executes": RunContent(Role("thing", Path("/roles/thing")), add_first=None, finalizing=finalizing),
        "resource": RESOURCE,
        "guard": LeaseGuard(lambda: True),
        "ident": "ident",
    }
    return Attempt(**{**fields, **different})
