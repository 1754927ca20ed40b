"""Each check of what happened to objects and of what runs wrote down notices a violation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.faults import history, journal
from tests.faults.history import Seen
from tests.faults.journal import Line, Logged
from tests.kit.relay import merged

THING = Seen(1, "ADDED", "Thing", "one", "old", generation=1)
OWNED = Seen(2, "ADDED", "ConfigMap", "one", "c1", "old")
OUTSIDE = Seen(3, "ADDED", "ConfigMap", "one-outside", "c2", "old")


def _line(job: str, what: str, uid: str = "old", *, finalizing: bool = False) -> Line:
    return Line("1:1", job, "one", uid, 1, what, finalizing)


def test_a_dependent_created_twice_for_the_same_owner_is_detected() -> None:
    again = replace(OWNED, version=9, uid="c3")
    assert history.repeated([THING, OWNED, replace(again, owner="new")], {}) == []
    assert history.repeated([THING, OWNED, again], {}) == ["one was made 2 times for old"]
    assert history.repeated([THING, OWNED, again], {"one": 1}) == []


def test_a_dependent_deleted_twice_is_detected() -> None:
    gone = replace(OWNED, version=8, what="DELETED")
    assert history.lost_twice([OWNED, gone], {}) == []
    assert history.lost_twice([OWNED, gone, replace(gone, version=12)], {}) == ["one was deleted 2 times for old"]
    assert history.lost_twice([OWNED, gone, replace(gone, version=12)], {"one": 1}) == []


def test_a_deletion_of_a_dependent_of_a_newer_uid_is_detected() -> None:
    gone = replace(OUTSIDE, version=9, what="DELETED")
    deleting = replace(THING, version=5, what="MODIFIED", deleting=True)
    newer = replace(THING, version=7, uid="new")
    assert history.robbed([THING, OUTSIDE, deleting, newer, gone]) == []
    assert len(history.robbed([THING, OUTSIDE, gone])) == 1
    assert len(history.robbed([deleting, newer, replace(gone, owner="new")])) == 1
    ended = replace(THING, version=5, what="DELETED")
    assert history.robbed([THING, OUTSIDE, ended, gone]) == []
    assert history.robbed([gone, ended, THING]) == [], "watches of two kinds are in no order"
    assert len(history.robbed([gone, replace(ended, version=11), THING])) == 1


def test_a_finalizer_that_runs_twice_or_beside_or_before_a_run_is_detected() -> None:
    run = [_line("a", "begin"), _line("a", "end")]
    first = [_line("f", "begin", finalizing=True), _line("f", "end", finalizing=True)]
    second = [_line("g", "begin", finalizing=True), _line("g", "end", finalizing=True)]
    assert history.finalized_wrongly([*run, *first], 0) == []
    assert history.finalized_wrongly([*run, *first, *second], 0) == ["old was finalized 2 times"]
    assert history.finalized_wrongly([*run, *first, *second], 1) == []
    assert len(history.finalized_wrongly([run[0], first[0], run[1], first[1]], 0)) >= 1
    assert len(history.finalized_wrongly([*first, *run], 0)) == 2
    beside = [_line("b", "begin"), _line("b", "end")]
    assert len(history.finalized_wrongly([run[0], beside[0], run[1], beside[1]], 0)) == 1


def test_conditions_of_another_generation_are_detected() -> None:
    current = replace(THING, version=4, what="MODIFIED", generation=2, observed=2)
    assert history.not_current([THING, current]) == []
    assert len(history.not_current([THING, replace(current, observed=3)])) == 1
    assert len(history.not_current([current, replace(current, version=5, observed=1)])) == 1


def _end() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    successful = {"type": "Successful", "status": "True", "observedGeneration": 2}
    thing = {"metadata": {"name": "one", "uid": "new", "generation": 2}, "status": {"conditions": [successful]}}
    reference = {"ownerReferences": [{"uid": "new"}]}
    owned = {"metadata": {"name": "one", **reference}, "data": {"size": "3", "owner": "new"}}
    return thing, owned, {"metadata": {"name": "one-outside"}, "data": {"owner": "new"}}


def test_a_wrong_end_state_is_detected() -> None:
    thing, owned, outside = _end()
    assert history.not_as_wanted([thing], [owned, outside], {"one": 3}) == []
    assert len(history.not_as_wanted([thing], [owned, outside], {"one": 4})) == 1
    assert len(history.not_as_wanted([thing], [owned], {"one": 3})) == 1
    assert len(history.not_as_wanted([], [], {"one": 3})) == 1
    assert len(history.not_as_wanted([thing], [owned, outside], {})) == 3
    assert len(history.not_as_wanted([{**thing, "status": {}}], [owned, outside], {"one": 3})) == 1
    for condition in ({"status": "False"}, {"observedGeneration": 1}):
        conditions = [{**thing["status"]["conditions"][0], **condition}]
        reported = {**thing, "status": {"conditions": conditions}}
        assert len(history.not_as_wanted([reported], [owned, outside], {"one": 3})) == 1
    older = {**owned, "metadata": {"name": "one", "ownerReferences": [{"uid": "old"}]}}
    assert len(history.not_as_wanted([thing], [older, outside], {"one": 3})) == 1


def _event(what: str, name: str, uid: str) -> bytes:
    return json.dumps({"type": what, "object": {"metadata": {"name": name, "uid": uid}}}).encode()


def test_merged_events_are_what_a_watch_that_missed_the_others_would_deliver() -> None:
    missed = [
        _event("DELETED", "again", "old"),
        _event("ADDED", "again", "new"),
        _event("ADDED", "brief", "1"),
        _event("DELETED", "brief", "1"),
        _event("ADDED", "fresh", "2"),
        _event("MODIFIED", "fresh", "2"),
        _event("MODIFIED", "gone", "3"),
        _event("DELETED", "gone", "3"),
    ]
    found = [json.loads(line) for line in merged(missed)]
    delivered = [
        (each["type"], each["object"]["metadata"]["name"], each["object"]["metadata"]["uid"]) for each in found
    ]
    assert delivered == [("MODIFIED", "again", "new"), ("ADDED", "fresh", "2"), ("DELETED", "gone", "3")]


def _entry(job: str, what: str, uid: str = "u", generation: int = 1, *, finalizing: bool = False) -> Line:
    return Line("1:1", job, "obj", uid, generation, what, finalizing)


def test_two_concurrent_runs_of_an_object_are_detected() -> None:
    one_after_the_other = [_entry("a", "begin"), _entry("a", "end"), _entry("b", "begin"), _entry("b", "end")]
    assert journal.overlaps(one_after_the_other) == []
    at_once = [_entry("a", "begin"), _entry("b", "begin"), _entry("a", "end")]
    assert len(journal.overlaps(at_once)) == 1
    of_two_objects = [_entry("a", "begin"), _entry("b", "begin", uid="v"), _entry("a", "end")]
    assert journal.overlaps(of_two_objects) == []


def test_a_missing_run_and_a_run_without_an_end_are_detected() -> None:
    assert journal.lost([_entry("a", "begin"), _entry("a", "end")], {"u": 1}) == []
    assert len(journal.lost([_entry("a", "begin"), _entry("a", "end")], {"u": 2})) == 1
    assert len(journal.lost([_entry("a", "begin")], {"u": 1})) == 1
    assert len(journal.lost([], {"u": 1})) == 1


def test_a_run_without_a_cause_is_detected() -> None:
    lines = [_entry("a", "begin"), _entry("b", "begin")]
    succeeded, retried = Logged("created", "succeeded"), Logged("retry", "succeeded")
    assert len(journal.doubled(lines, {"a": succeeded, "b": retried})) == 1
    assert journal.doubled(lines, {"a": Logged("created", "failed"), "b": retried}) == []
    assert journal.doubled(lines, {"a": succeeded, "b": Logged("dependent changed", "succeeded")}) == []
    assert journal.doubled([_entry("a", "begin"), _entry("b", "begin", generation=2)], {"a": succeeded}) == []
    finalized = [_entry("a", "begin", finalizing=True), _entry("b", "begin", finalizing=True)]
    assert len(journal.doubled(finalized, {"a": succeeded, "b": Logged("dependent changed", "succeeded")})) == 1


def test_an_object_deleted_without_its_finalizer_is_detected() -> None:
    ran = [_entry("a", "begin"), _entry("a", "end")]
    finalized = [*ran, _entry("b", "begin", finalizing=True), _entry("b", "end", finalizing=True)]
    assert journal.unfinalized(finalized, ["u"]) == []
    assert journal.unfinalized(ran, ["other"]) == []
    assert len(journal.unfinalized(ran, ["u"])) == 1
