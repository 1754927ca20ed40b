"""What an object's deletion mark and finalizers ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner import finalizers
from runner.objects import GVK
from runner.watches import Finalizer, Role, Watch

NAME = "cache.example.com/finalizer"
ROLE = Role("main", Path("/roles/main"))
CLEANUP = Role("cleanup", Path("/roles/cleanup"))


def _watch(finalizer: Finalizer | None) -> Watch:
    return Watch(
        gvk=GVK("cache.example.com", "v1alpha1", "Memcached"),
        content=ROLE,
        vars={},
        finalizer=finalizer,
        reconcile_period=None,
        manage_status=True,
        watch_dependent_resources=True,
        watch_cluster_scoped_resources=False,
        watch_annotations_changes=False,
        max_runner_artifacts=20,
        snake_case_parameters=True,
        mark_unsafe=True,
        selector="",
        blacklist=frozenset(),
        line=1,
    )


def _object(*names: str, deleting: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "a", "uid": "u1"}
    if names:
        meta["finalizers"] = list(names)
    if deleting:
        meta["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return {"metadata": meta}


WITH = _watch(Finalizer(NAME, CLEANUP, {"state": "absent"}))
WITHOUT = _watch(None)


def test_a_new_object_gets_the_finalizer_before_its_first_run() -> None:
    plan = finalizers.plan(WITH, _object("other/one"))
    assert plan is not None
    assert plan.content is ROLE
    assert plan.add_first is not None
    assert plan.add_first[-1] == {"op": "add", "path": "/metadata/finalizers", "value": ["other/one", NAME]}
    assert not plan.finalizing


def test_an_object_that_has_the_finalizer_is_not_patched() -> None:
    plan = finalizers.plan(WITH, _object(NAME))
    assert plan is not None
    assert plan.add_first is None


def test_deletion_runs_the_finalizers_content_with_its_vars() -> None:
    plan = finalizers.plan(WITH, _object(NAME, deleting=True))
    assert plan is not None
    assert plan.content is CLEANUP
    assert plan.vars == {"state": "absent"}
    assert plan.finalizing


@pytest.mark.parametrize("watch", [WITH, WITHOUT])
def test_deletion_without_our_finalizer_runs_nothing(watch: Watch) -> None:
    assert finalizers.plan(watch, _object("other/one", deleting=True)) is None


def test_a_watch_without_finalizer_adds_none() -> None:
    plan = finalizers.plan(WITHOUT, _object())
    assert plan is not None
    assert plan.add_first is None


def test_removal_keeps_others_and_tests_what_it_saw() -> None:
    patch = finalizers.removal(NAME, _object("other/one", NAME, deleting=True))
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["other/one", NAME]},
        {"op": "add", "path": "/metadata/finalizers", "value": ["other/one"]},
    ]


def test_nothing_is_removed_where_nothing_stands() -> None:
    assert finalizers.removal(NAME, _object("other/one", deleting=True)) is None
