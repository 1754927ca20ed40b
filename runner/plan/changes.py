"""Changes of a plan run in the form of a report: normalised, compared and masked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runner.engine.run_secrets import RunSecrets
from runner.objects import Object, ObjectRef
from runner.plan.fields import ABSENT, FieldChange, differences, normalised
from runner.plan.masked import masked
from runner.plan.results import ObjectChange
from runner.proxy.planning.changes import PlannedChange
from runner.status import report


def reported(
    planned: Iterable[PlannedChange], secrets: RunSecrets, owner: ObjectRef | None = None
) -> tuple[ObjectChange, ...]:
    """Return the changes of a run. A change of nothing but maintained metadata is none.

    `owner` is the run's object: parts of its status that only the operator writes are not compared.

    Raises:
        SearchTimeoutError: the search for secret values took too long.
        RecursionError: an object is nested too deeply.
    """
    found = (_reported(_foreign(change, owner), secrets) for change in planned)
    return tuple(change for change in found if change is not None)


def _reported(change: PlannedChange, secrets: RunSecrets) -> ObjectChange | None:
    fields = _fields(change)
    if change.verb == "change" and not fields and not change.recreated:
        return None
    return ObjectChange(
        verb=change.verb,
        gvk=change.gvk,
        key=change.key,
        fields=masked(change.gvk, fields, secrets),
        not_validated=change.reason,
        recreated=change.recreated,
    )


def _foreign(change: PlannedChange, owner: ObjectRef | None) -> PlannedChange:
    """Remove the operator's own parts of the owner's status."""
    if owner is None or (change.gvk.group, change.gvk.kind, change.key) != (owner.gvk.group, owner.gvk.kind, owner.key):
        return change
    before, after = (_without_own(each) for each in (change.before, change.after))
    return replace(change, before=before, after=after)


def _without_own(obj: Object | None) -> Object | None:
    if obj is None or not isinstance(found := obj.get("status"), dict):
        return obj
    rest = {name: value for name, value in obj.items() if name != "status"}
    kept = report.without_own(found)
    return {**rest, "status": kept} if kept else rest


def _fields(change: PlannedChange) -> tuple[FieldChange, ...]:
    if change.after is None:
        return ()
    if change.before is None:
        # The status of a new object is the API server's, unless a later write of the run changed it.
        with_status = change.writes > 1 and bool(change.after.get("status"))
        return (FieldChange("", ABSENT, normalised(change.after, with_status=with_status, created=True)),)
    with_status = change.before.get("status") != change.after.get("status") and not change.recreated
    before, after = (
        normalised(each, with_status=with_status, created=change.recreated) for each in (change.before, change.after)
    )
    return differences(before, after)
