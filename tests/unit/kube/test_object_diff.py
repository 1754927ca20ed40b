"""Which fields changed."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.kube.object_state import MOST, changed_fields, differing, fingerprint


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({"size": 1}, {"size": 2}, ("spec.size",)),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3, "d": 4}}, ("spec.a.c", "spec.a.d")),
        ({"a": {"b": 1}}, {"a": [1]}, ("spec.a",)),
        ({"list": [{"a": 1}]}, {"list": [{"a": 2}]}, ("spec.list",)),
        ({"gone": None, "b": 1}, {"b": 1}, ()),
        ({"size": 1}, {"size": 1}, ()),
    ],
)
def test_each_field_that_changed_is_named_by_its_path(old: Any, new: Any, fields: tuple[str, ...]) -> None:
    assert changed_fields({"spec": old}, {"spec": new}) == fields


def test_content_outside_of_a_spec_counts_but_metadata_and_status_do_not() -> None:
    old = {"kind": "Secret", "metadata": {"labels": {"a": "1"}}, "data": {"password": "eA=="}, "status": {"a": 1}}
    new = {"kind": "Secret", "metadata": {}, "data": {"password": "eQ=="}, "status": {"a": 2}, "type": "Opaque"}
    assert changed_fields(old, new) == ("data.password", "type")


def test_a_spec_that_appears_is_one_field() -> None:
    assert changed_fields({}, {"spec": {"a": 1}}) == ("spec",)


def test_only_the_first_of_many_changed_fields_are_named() -> None:
    many = {f"f{number:03}": number for number in range(100)}
    fields = changed_fields({"spec": {}}, {"spec": many})
    assert len(fields) == MOST + 1
    assert fields[-1] == "and more"


def test_a_long_key_is_not_repeated_in_the_path_of_each_field_below_it() -> None:
    old = {"spec": {"x" * 10_000: {f"k{number}": 1 for number in range(50)}}}
    new = {"spec": {"x" * 10_000: {f"k{number}": 2 for number in range(50)}}}
    assert max(map(len, changed_fields(old, new))) < 300
    assert max(map(len, fingerprint(new))) < 300
    assert len(differing(fingerprint(old), fingerprint(new))) == 50


def test_fields_whose_long_names_differ_only_at_the_end_are_two_fields() -> None:
    content = {"spec": {"x" * 1000 + "a": 1, "x" * 1000 + "b": 1}}
    assert len(fingerprint(content)) == 2
