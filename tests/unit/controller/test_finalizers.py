"""What an object's deletion mark and finalizers ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.controller import decisions
from runner.engine.job import canceled
from runner.watches.watch import Finalizer, Role, Watch

NAME = "cache.example.com/finalizer"
MakeWatch = Callable[..., Watch]
ROLE = Role("main", Path("/roles/main"))
CLEANUP = Role("cleanup", Path("/roles/cleanup"))


def _object(*names: str, deleting: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "a", "uid": "u1"}
    if names:
        meta["finalizers"] = list(names)
    if deleting:
        meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return {"metadata": meta}


@pytest.fixture
def finalized(make_watch: MakeWatch) -> Watch:
    return make_watch(content=ROLE, finalizer=Finalizer(NAME, CLEANUP, {"state": "absent"}, None))


def test_a_new_object_gets_the_finalizer_before_its_first_run(finalized: Watch) -> None:
    plan = decisions.plan(finalized, _object("other/one"))
    assert plan is not None
    assert plan.content is ROLE
    assert plan.add_first is not None
    assert plan.add_first[-1] == {"op": "add", "path": "/metadata/finalizers", "value": ["other/one", NAME]}
    assert not plan.finalizing


def test_an_object_that_has_the_finalizer_is_not_patched(finalized: Watch) -> None:
    plan = decisions.plan(finalized, _object(NAME))
    assert plan is not None
    assert plan.add_first is None


def test_deletion_runs_the_finalizers_content_with_its_vars(finalized: Watch) -> None:
    plan = decisions.plan(finalized, _object(NAME, deleting=True))
    assert plan is not None
    assert plan.content is CLEANUP
    assert plan.vars == {"state": "absent"}
    assert plan.finalizing


def test_a_deletion_without_the_operators_finalizer_starts_no_run(finalized: Watch, make_watch: MakeWatch) -> None:
    for watch in (finalized, make_watch()):
        assert decisions.plan(watch, _object("other/one", deleting=True)) is None


def test_a_watch_without_finalizer_adds_none(make_watch: MakeWatch) -> None:
    plan = decisions.plan(make_watch(), _object())
    assert plan is not None
    assert plan.add_first is None


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
