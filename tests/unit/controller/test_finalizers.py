"""What an object's deletion mark and finalizers ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.core.engine.job import canceled
from runner.core.reconcile import decisions
from runner.core.watches.watch import Finalizer, Role, Watch
from runner.values.objects import Object
from tests.kit.watch_values import watch_value

NAME = "cache.example.com/finalizer"
ROLE = Role("main", Path("/roles/main"))
CLEANUP = Role("cleanup", Path("/roles/cleanup"))


def _object(*names: str, deleting: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "a", "uid": "u1"}
    if names:
        meta["finalizers"] = list(names)
    if deleting:
        meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return {"metadata": meta}


PLAIN = watch_value(content=ROLE)
FINALIZED = watch_value(content=ROLE, finalizer=Finalizer(NAME, CLEANUP, {"state": "absent"}, None))


@pytest.mark.parametrize(
    ("watch", "obj", "added"),
    [
        (FINALIZED, _object("other/one"), ["other/one", NAME]),
        (FINALIZED, _object(NAME), None),
        (PLAIN, _object(), None),
    ],
    ids=["a new object", "an object that has it", "a watch without finalizer"],
)
def test_an_object_gets_the_finalizer_before_its_first_run(watch: Watch, obj: Object, added: list[str] | None) -> None:
    plan = decisions.run_content(watch, obj)
    assert plan is not None
    assert (plan.content, plan.finalizing) == (ROLE, False)
    assert (plan.add_first[-1] if plan.add_first else None) == (
        {"op": "add", "path": "/metadata/finalizers", "value": added} if added else None
    )


def test_deletion_runs_the_finalizers_content() -> None:
    plan = decisions.run_content(FINALIZED, _object(NAME, deleting=True))
    assert plan is not None
    assert (plan.content, plan.finalizing) == (CLEANUP, True)


@pytest.mark.parametrize("watch", [FINALIZED, PLAIN], ids=["with finalizer", "without"])
def test_a_deletion_without_the_operators_finalizer_starts_no_run(watch: Watch) -> None:
    assert decisions.run_content(watch, _object("other/one", deleting=True)) is None


def test_the_removal_keeps_other_finalizers_and_tests_uid_and_finalizers() -> None:
    patch = decisions.finalizer_removed(NAME, _object("other/one", NAME, deleting=True))
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["other/one", NAME]},
        {"op": "add", "path": "/metadata/finalizers", "value": ["other/one"]},
    ]


def test_a_missing_finalizer_is_not_removed() -> None:
    assert decisions.finalizer_removed(NAME, _object("other/one", deleting=True)) is None


def test_the_lost_run_of_a_finalizer_is_repeated_and_another_run_is_not() -> None:
    obj = _object(NAME, deleting=True)
    run = replace(canceled("The pod of the run was lost: it was deleted.", 1.0), lost=True)
    assert decisions.lost(run, obj, obj, finalizing=True).message.endswith("deleted. The run is repeated.")
    assert decisions.lost(run, obj, obj, finalizing=False) is run
    assert decisions.lost(run, obj, None, finalizing=True) is run
