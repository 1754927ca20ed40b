"""The overlay of planned writes, and selectors on planned objects."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.plan.trial.overlay import NAMESPACES, Action, KindId, Overlay, PlannedState, Refusal, Step, step
from runner.features.plan.trial.selection import Selector, SelectorError
from runner.values.objects import GVK, Object, ObjectKey

MAPS = ApiResource(GVK("", "v1", "ConfigMap"), "configmaps", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced
SPACES = ApiResource(GVK("", "v1", "Namespace"), "namespaces", False, frozenset(), frozenset())  # noqa: FBT003 - not
KIND = KindId("", "configmaps")
A, SPACE = ObjectKey("ns", "a"), ObjectKey("", "ns")


def obj(**more: Any) -> Object:
    return {"metadata": {"name": "a", "resourceVersion": "1", "managedFields": []}, **more}


def test_a_change_back_to_the_first_state_is_no_change() -> None:
    overlay, before = Overlay(), obj(data="x")
    overlay.record(MAPS, A, before, obj(data="y"), existed=True)
    (change,) = overlay.changes()
    assert (change.verb, change.before, change.writes) == ("change", before, 1)
    overlay.record(MAPS, A, None, {"metadata": {"name": "a", "resourceVersion": "2"}, "data": "x"}, existed=True)
    assert overlay.changes() == []


def test_a_deletion_of_a_created_object_is_no_change() -> None:
    overlay = Overlay()
    overlay.record(MAPS, A, None, obj(), existed=False)
    overlay.record(MAPS, A, None, None, existed=False)
    assert overlay.changes() == []
    assert not overlay.hides(KIND, A)
    overlay.record(MAPS, A, None, obj(), existed=False, reason="why")
    (change,) = overlay.changes()
    assert (change.verb, change.reason, change.recreated) == ("create", "why", False)


def test_a_recreated_object_is_a_change_even_if_it_is_equal() -> None:
    overlay = Overlay()
    overlay.record(MAPS, A, obj(), None, existed=True)
    assert overlay.hides(KIND, A)
    overlay.record(MAPS, A, None, obj(), existed=False)
    (change,) = overlay.changes()
    assert (change.verb, change.recreated) == ("change", True)
    overlay.record(MAPS, A, None, None, existed=True)
    (change,) = overlay.changes()
    assert (change.verb, change.recreated) == ("delete", False)


def test_a_deleted_namespace_takes_its_objects_along() -> None:
    overlay = Overlay()
    assert overlay.has_namespace("ns") is None
    overlay.record(MAPS, A, None, obj(), existed=False)
    overlay.record(SPACES, SPACE, obj(), None, existed=True)
    assert [change.verb for change in overlay.changes()] == ["delete"]
    assert overlay.has_namespace("ns") is False
    assert overlay.hides(KIND, ObjectKey("ns", "untouched"))
    assert not overlay.hides(KIND, ObjectKey("elsewhere", "untouched"))
    assert overlay.affects(KindId("apps", "deployments"), "ns")
    assert overlay.affects(KindId("apps", "deployments"), "")
    assert not overlay.affects(KindId("apps", "deployments"), "elsewhere")
    overlay.record(SPACES, SPACE, None, obj(), existed=False)
    assert overlay.only_planned("ns")
    assert overlay.hides(KIND, ObjectKey("ns", "untouched"))


def test_only_lists_with_planned_objects_are_affected() -> None:
    overlay = Overlay()
    overlay.record(MAPS, A, None, obj(), existed=False)
    assert overlay.affects(KIND, "ns")
    assert overlay.affects(KIND, "")
    assert not overlay.affects(KIND, "other")
    assert not overlay.affects(NAMESPACES, "")
    overlay.record(SPACES, ObjectKey("", "new"), None, obj(), existed=False)
    assert overlay.only_planned("new")
    assert not overlay.only_planned("ns")
    assert not overlay.affects(KIND, "new")


def test_refusals_and_reasons_are_listed_once() -> None:
    overlay = Overlay()
    for _ in range(2000):
        overlay.refuse(Refusal("create", "pods/exec", A, "it is a session"))
    overlay.incomplete("because")
    overlay.incomplete("because")
    assert len(overlay.refusals) == 1000
    assert overlay.partial_reasons == ["refused create pods/exec ns/a: it is a session", "because"]


SELECTED = {
    "metadata": {"name": "a", "labels": {"tier": "web", "size": "3", "app.kubernetes.io/name": "x"}},
    "spec": {"unschedulable": True},
    "type": "a,b=c",
}


@pytest.mark.parametrize(
    ("labels", "fields", "matches"),
    [
        ("", "", True),
        ("tier=web", "", True),
        ("tier==web, size", "", True),
        ("tier!=web", "", False),
        ("absent!=x,!absent", "", True),
        ("!tier", "", False),
        ("tier in (db, web)", "", True),
        ("tier notin (db),app.kubernetes.io/name=x", "", True),
        ("absent notin (x)", "", True),
        ("absent in (x)", "", False),
        ("size>2,size<4", "", True),
        ("size>3", "", False),
        ("tier>1", "", False),
        ("tier=", "", False),
        ("", "metadata.name=a", True),
        ("", "metadata.name==a,metadata.namespace!=x", True),
        ("", "status.phase=Running", False),
        ("", "spec.unschedulable=true", True),
        ("", r"type=a\,b\=c", True),
        ("", "missing=", True),
    ],
)
def test_selectors_of_labels_and_fields_match_like_at_the_api_server(
    labels: str, fields: str, *, matches: bool
) -> None:
    assert Selector.parse([labels], [fields]).matches(SELECTED) is matches


@pytest.mark.parametrize(("labels", "fields"), [("a=b=c", ""), ("!a=b", ""), ("a in b", ""), ("", "name"), ("", "=x")])
def test_invalid_selectors_are_rejected(labels: str, fields: str) -> None:
    with pytest.raises(SelectorError):
        Selector.parse([labels], [fields])


@pytest.mark.parametrize("selector", [" " * 60_000 + "=", "a=" + " " * 60_000 + "("])
def test_blanks_in_a_selector_are_read_once_and_not_for_hours(selector: str) -> None:
    with pytest.raises(SelectorError):
        Selector.parse([selector], [])


TABLE = """
state      create   change   delete   evict
unchanged  send     send     send     send
changed    exists   compute  send     send
created    exists   compute  local    refuse
replaced   exists   compute  local    send
deleted    replace  missing  missing  missing
withdrawn  send     missing  missing  missing
"""
IN_PLANNED_NAMESPACE = {
    ("create", "unchanged"): "local",
    ("create", "deleted"): "local",
    ("create", "withdrawn"): "local",
    ("change", "unchanged"): "missing",
}


def rows() -> list[tuple[str, str, str]]:
    (_, *actions), *lines = [line.split() for line in TABLE.strip().splitlines()]
    return [(action, state, found) for state, *steps in lines for action, found in zip(actions, steps, strict=True)]


@pytest.mark.parametrize(("action", "state", "expected"), rows())
def test_the_state_of_the_object_decides(action: str, state: str, expected: str) -> None:
    given = Action[action.upper()], PlannedState[state.upper()]
    assert step(*given, in_planned_namespace=False) is Step[expected.upper()]
    expected = IN_PLANNED_NAMESPACE.get((action, state), expected)
    assert step(*given, in_planned_namespace=True) is Step[expected.upper()]


def test_each_action_in_each_state_is_in_the_table() -> None:
    assert {(action, state) for action, state, _ in rows()} == {
        (action.name.lower(), state.name.lower()) for action in Action for state in PlannedState
    }
