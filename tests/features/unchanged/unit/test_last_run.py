"""The record of an object's last run: what it is made of, and when it makes another one needless."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from runner.features.unchanged.hooks import LastRun, RunInputs
from runner.features.unchanged.requests import ReadEntry, ReadSet
from runner.values.digests import digest_of, digest_of_answer
from runner.values.objects import LAST_RUN, Object, ObjectKey

THING: Object = {
    "apiVersion": "v1",
    "kind": "Thing",
    "metadata": {"name": "one", "uid": "u", "labels": {"a": "1"}, "annotations": {"b": "2"}, "resourceVersion": "7"},
    "spec": {"size": 1},
    "status": {"conditions": []},
}
RECORD = LastRun("o", "c", "w", {"/api/v1/x": "d"}, 100.0, "n")


def changed(**paths: Any) -> Object:
    obj = deepcopy(THING)
    for path, value in paths.items():
        *parents, last = path.split("__")
        place = obj
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return obj


@pytest.mark.parametrize(
    "other",
    [
        changed(spec__size=2),
        changed(data={"x": "y"}),
        changed(metadata__labels={"a": "2"}),
        changed(metadata__annotations={"b": "3"}),
        changed(metadata__uid="another"),
    ],
)
def test_fields_that_a_role_may_depend_on_change_the_digest(other: Object) -> None:
    assert digest_of(other) != digest_of(THING)


@pytest.mark.parametrize(
    "same",
    [
        changed(status={"x": 1}),
        changed(metadata__resourceVersion="8", metadata__generation=4, metadata__managedFields=[{}]),
        changed(metadata__finalizers=["ours"]),
        changed(metadata__annotations={"b": "2", LAST_RUN: "{}"}),
    ],
)
def test_fields_that_the_operator_or_the_api_server_changes_do_not_change_the_digest(same: Object) -> None:
    assert digest_of(same) == digest_of(THING)


def test_a_record_is_read_as_it_was_written() -> None:
    obj = changed(metadata__annotations={LAST_RUN: RECORD.written()})
    assert LastRun.of(obj) == RECORD


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"object": 1}', '{"object":"","content":"","owned":"","reads":[]}'],
)
def test_an_invalid_record_is_ignored(text: str) -> None:
    assert LastRun.of(changed(metadata__annotations={LAST_RUN: text})) is None
    assert LastRun.of(THING) is None


@pytest.mark.parametrize(("due", "is_due"), [("nan", True), ("-inf", True), ("inf", False), ("1e300", False)])
def test_a_time_that_is_no_time_fails_no_check(due: str, *, is_due: bool) -> None:
    text = '{"object":"o","content":"c","owned":"","due":"' + due + '"}'
    record = LastRun.of(changed(metadata__annotations={LAST_RUN: text}))
    assert record is not None
    assert record.written()
    assert bool(record.outdated(RunInputs("o", "c", ""), 1e9)) is is_due


@pytest.mark.parametrize(
    ("obj", "content", "named", "now", "why"),
    [
        ("o", "c", "n", 99.0, ""),
        ("x", "c", "n", 99.0, "the object has changed"),
        ("o", "x", "n", 99.0, "the role, playbook"),
        ("o", "c", "x", 99.0, "a reference of the object"),
        ("o", "c", None, 99.0, "the state of the object's references"),
        ("o", "c", "n", 100.0, "the last run requested"),
    ],
)
def test_a_record_is_outdated_by_each_of_its_parts(
    obj: str, content: str, named: str | None, now: float, why: str
) -> None:
    assert RECORD.outdated(RunInputs(obj, content, named), now).startswith(why)
    assert bool(RECORD.outdated(RunInputs(obj, content, named), now)) == bool(why)


def test_an_answer_is_compared_with_status_and_without_what_moves_by_itself() -> None:
    assert digest_of_answer(changed(status={"x": 1})) != digest_of_answer(THING)
    assert digest_of_answer(changed(metadata__resourceVersion="9")) == digest_of_answer(THING)
    assert digest_of_answer(None) != digest_of_answer({})


def test_a_list_is_compared_by_its_items() -> None:
    item = {name: value for name, value in THING.items() if name not in {"kind", "apiVersion"}}
    listed = {"kind": "ThingList", "metadata": {"resourceVersion": "1"}, "items": [item]}
    later = {**listed, "metadata": {"resourceVersion": "2"}, "items": [THING]}
    assert digest_of_answer(listed) == digest_of_answer(later)
    assert digest_of_answer({**listed, "items": []}) != digest_of_answer(listed)


def test_a_run_that_reads_very_many_objects_is_not_recorded() -> None:
    seen = ReadEntry(("", "configmaps"), ObjectKey("ns", "a"), "digest")
    reads = ReadSet()
    for number in range(1000):
        reads.saw(f"/{number}", seen)
    reads.saw("/0", seen)
    assert len(reads.reads) == 1000
    reads.saw("/1000", seen)
    assert reads.unseen == "the run read too many objects"
    assert len(reads.reads) == 1000
