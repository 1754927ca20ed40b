from __future__ import annotations

from typing import Any

import pytest

from runner.core.watches.spec_paths import SpecPath, Wildcard

SPEC: dict[str, Any] = {
    "secretName": "one",
    "users": [{"name": "a", "secretRef": {"name": "two"}}, {"name": "b"}, "odd"],
    "pools": {"web": {"env": {"A": 1}}, "db": {"env": None}},
    "nested": [[{"name": "deep"}]],
    "annotations": {"example.com/x.y": "three"},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("spec.secretName", ["one"]),
        ("spec.users[*].name", ["a", "b"]),
        ("spec.users.name", ["a", "b"]),
        ("spec.users[*].secretRef.name", ["two"]),
        ("spec.pools.*.env", [{"A": 1}, None]),
        ("spec.nested[*][*].name", ["deep"]),
        ("spec.nested.name", ["deep"]),
        ('spec.annotations["example.com/x.y"]', ["three"]),
        ("spec['secretName']", ["one"]),
        ("spec.missing.name", []),
        ("spec.secretName.name", []),
        ("spec.secretName[*]", []),
        ("spec", [SPEC]),
    ],
)
def test_a_path_finds_the_values_at_its_place(text: str, found: list[Any]) -> None:
    assert list(SpecPath.parse(text).find(SPEC)) == found


def test_a_path_finds_the_items_of_a_list_only_with_brackets() -> None:
    spec = {"names": ["a", "b"]}
    assert list(SpecPath.parse("spec.names").find(spec)) == [["a", "b"]]
    assert list(SpecPath.parse("spec.names[*]").find(spec)) == ["a", "b"]


@pytest.mark.parametrize("spec", [None, "text", 3, [], {}])
def test_a_path_finds_nothing_in_specs_of_other_types(spec: Any) -> None:
    assert list(SpecPath.parse("spec.a[*].b").find(spec)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "spec.",
        "spec..a",
        "spec.a.",
        "spec[0]",
        "spec[a]",
        "spec.a[",
        "spec a",
        "special",
        "spec.a*",
        ".spec.a",
    ],
)
def test_an_invalid_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid path .*: use a path in the spec such as spec\.config\.env"):
        SpecPath.parse(text)


def test_a_path_remembers_how_it_was_written() -> None:
    path = SpecPath.parse("spec.a[*].*")
    assert (path.text, path.steps) == ("spec.a[*].*", ("a", Wildcard.ITEM, Wildcard.VALUE))
